#| # Bayes-adaptive tiger by hand
#|
#| Two doors. Behind one waits a tiger (−100), behind the other a treasure (10). Listening costs 1 and names
#| the good door correctly with probability .85. Everything here is exact, in NumPy: what the rest of the
#| library approximates.
#|
#| ## The hearing is known
#|
#| The belief is p(good door is left). Bayes' rule, by hand and by `baddr.exact`:
import numpy as np

from baddr import exact
from baddr.domains import tiger

LEFT, RIGHT, LISTEN = 0, 1, 2
domain = tiger.make_domain()
p0 = np.array([0.5, 0.5])
true = exact.tabulate(domain.pomdp, p0)

b = p0
for n in (1, 2, 3):
    b, _ = exact.belief_update(true, b, LISTEN, LEFT)
    by_hand = 0.85**n / (0.85**n + 0.15**n)
    print(f"heard left {n} times: p(left) = {b[LEFT]:.4f}, by hand {by_hand:.4f}")
#| ## The hearing is unknown
#|
#| Now the agent does not know that .85. It starts from counts: as if it had heard right 5 times of 8, for
#| each door. The belief is over the door *and* the counts, a mixture: each hypothesis about the door keeps
#| its own counts, since what was heard counts as right in one of them and as wrong in the other.
posterior = exact.DirichletTables(np.asarray(domain.counts.T), np.asarray(domain.counts.O))
mixture = exact.initial_mixture(posterior, p0)
for n in (1, 2, 3):
    mixture, p_heard = exact.mixture_update(posterior, mixture, LISTEN, LEFT)
    mean, variance = posterior.observation_moments(mixture, LISTEN, LEFT, LEFT)
    print(
        f"heard left {n} times: p(left) = {exact.state_probabilities(mixture)[LEFT]:.4f}, "
        f"believed hearing at the left door {mean:.3f} ± {np.sqrt(variance):.3f}"
    )
#| Hearing the same thing again says two things at once: it is more likely the left door, and one hears
#| better than one thought. But it may also be the right door, where one hears badly. So p(left) rises a
#| little more slowly than with a hearing that is fixed at .625:
fixed = [0.625**n / (0.625**n + 0.375**n) for n in (1, 2, 3)]
print("with a fixed hearing of .625:", " ".join(f"{p:.4f}" for p in fixed))
#| ## What learning is worth
#|
#| The Bayes-adaptive plan weighs what it would learn. Its value over the first three steps, and that of the
#| plan that knows the truth:
unknown, _ = exact.expectimax(true, steps=3, posterior=posterior)
known, _ = exact.expectimax(true, steps=3)
print(f"three steps: {unknown:.2f} without knowing the hearing, {known:.2f} with it")
#| Without knowing how well one hears, three steps are best spent listening: opening a door would be a
#| gamble, and −1 − .95 − .95² is all there is to lose. Who knows the hearing opens a door after two equal
#| answers. The longer an agent lives, the more it is worth to find out. Over a whole episode of 30 steps
#| `baddr solve tiger` says 3.77 for who knows the truth, and .97 is what the best plan for a hearing of
#| .625 earns in the true world.
#|
#| Next: [from counts to networks](counts-to-networks.md).
