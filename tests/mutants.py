"""Deliberate bugs, one at a time, each of which some test must notice: `make mutants`.

    python tests/mutants.py                     # all, with two at a time
    python tests/mutants.py --only keeps        # those whose name contains "keeps"
    python tests/mutants.py --room posteriors -j 4

A bug is a line of a room that is replaced, in a copy of the tree and never in the tree itself. It names the
quickest tests that notice it, slow ones too, which are first run without any bug. The exit code is 0 where
every bug is caught. One that survives needs a new test; one that no longer applies needs its line as it reads
now; and one that changes nothing that can be seen says so in `equivalent`. Add some with every new
capability.
"""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SECONDS = 900  # a bug may make a loop endless
PASSED, FAILED, BROKEN = 0, 1, 2  # pytest's exit codes; the last: tests that could not be imported


@dataclass(frozen=True)
class Mutant:
    name: str
    room: str  # the folder of src/baddr whose files hold `old` exactly once
    old: str
    new: str
    tests: str  # FILE or FILE::EXPRESSION, with an expression as pytest's -k takes it
    equivalent: str = ""  # why it changes nothing that can be seen: it is then not run


MUTANTS = [
    # --- filters and particles ---
    Mutant(
        "resampling keeps the states",
        "core",
        "epsilons, belief.states.s[i], (a, o))",
        "epsilons, belief.states.s, (a, o))",
        "test_joint_belief.py::systematic",
    ),
    Mutant(
        "the first try is taken",
        "core",
        "* tries + taken, log_mean",
        "* tries, log_mean",
        "test_belief_update.py::tried",
    ),
    Mutant(
        "a particle weighs as much as the try that it takes",
        "core",
        "jax.nn.logsumexp(log_likelihood, axis=1) - jnp.log(float(tries))",
        "jnp.take_along_axis(log_likelihood, taken[:, None], axis=1)[:, 0]",
        "test_belief_update.py::tried",
    ),
    Mutant(
        "both numbers of a pair are one",
        "prng",
        "jr.key_data(jr.split(key, n))[:, -2:].T",
        "jnp.stack([jr.key_data(jr.split(key, n))[:, -1]] * 2)",
        "test_prng.py::pairs",
    ),
    Mutant(
        "the next episode keeps the states",
        "core",
        "return Particles(_restarted(gba, AugmentedState(s, belief.states.theta)), belief.log_weights)",
        "return Particles(_restarted(gba, belief.states), belief.log_weights)",
        "test_joint_belief.py::rejection",
    ),
    Mutant(
        "the next episode forgets the weights",
        "core",
        "AugmentedState(s, belief.states.theta)), belief.log_weights)",
        "AugmentedState(s, belief.states.theta)), jnp.zeros_like(belief.log_weights))",
        "test_belief_update.py::next_episode",
    ),
    Mutant(
        "resampled particles keep their weights",
        "core",
        "log_prior = jnp.where(resample, uniform_weights(n), belief.log_weights)",
        "log_prior = belief.log_weights",
        "test_joint_belief.py::weighed_by_the_last",
    ),
    Mutant(
        "weights forget the ones before",
        "core",
        "log_joint = log_prior + log_likelihood",
        "log_joint = log_likelihood",
        "test_joint_belief.py::mixture and resampled",
    ),
    Mutant(
        "resampling above the threshold",
        "core",
        "belief.effective_sample_size() < how.resample_below",
        "belief.effective_sample_size() > how.resample_below",
        "test_belief_update.py::below_the_threshold",
    ),
    Mutant(
        "an impossible observation is learned",
        "core",
        "learn & ~impossible & active))\n    if how.weight_after_update",
        "learn & active))\n    if how.weight_after_update",
        "test_belief_update.py::impossible and importance",
    ),
    Mutant(
        "rejection keeps every proposal",
        "core",
        "accepted = jnp.all(o == given[1][None], axis=1)",
        "accepted = jnp.all(o >= 0, axis=1)",
        "test_joint_belief.py::rejection",
    ),
    Mutant(
        "rejection learns from another state",
        "core",
        "steps = Transition(belief.states.s[ancestors], a, s_next, o)\n    learn",
        "steps = Transition(belief.states.s, a, s_next, o)\n    learn",
        "test_belief_update.py::learning_adds_one",
    ),
    Mutant(
        "the effective sample size is not squared",
        "core",
        "return 1 / jnp.sum(jnp.exp(2 * self.log_weights))",
        "return 1 / jnp.max(jnp.exp(self.log_weights))",
        "test_particles.py::effective",
    ),
    Mutant(
        "an empty leaf is reshaped",
        "fast",
        "        flat = lambda tree: jax.tree.map(lambda x: x.reshape(math.prod(x.shape[:2]),",
        "        flat = lambda tree: jax.tree.map(lambda x: x.reshape(-1,",
        "test_particles.py::over_all",
    ),
    Mutant(
        "the comb has a tooth too few",
        "core",
        "(jnp.arange(num_indices, dtype=float) + jr.uniform(key)) / num_indices",
        "(jnp.arange(num_indices, dtype=float) + jr.uniform(key)) / (num_indices + 1)",
        "test_particles.py::resampled_once",
    ),
    # --- random numbers ---
    Mutant(
        "one rotation is another",
        "prng",
        "ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)",
        "ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 23)",
        "test_prng.py::known_answers",
    ),
    Mutant(
        "folds and splits share their counters",
        "prng",
        "jnp.full_like(data, FOLD_IN)",
        "jnp.full_like(data, SPLIT)",
        "test_prng.py::collide",
    ),
    Mutant(
        "an index of weight zero is drawn",
        "prng",
        "index = jnp.sum(running <= u, dtype=jnp.int32)",
        "index = jnp.sum(running < u, dtype=jnp.int32)",
        "test_prng.py::categorical",
        equivalent="differs only where a uniform number equals a running sum exactly",
    ),
    # --- the GBA-POMDP ---
    Mutant(
        "U is fed the state after the step",
        "core",
        "theta_next = self.posterior.update(key_U, s.theta, s.s, a, s_next, o)",
        "theta_next = self.posterior.update(key_U, s.theta, s_next, a, s_next, o)",
        "test_paper.py::def_4",
    ),
    Mutant(
        "a step of the GBA-POMDP learns nothing",
        "core",
        "return AugmentedState(s_next, theta_next), o",
        "return AugmentedState(s_next, s.theta), o",
        "test_paper.py::def_4",
    ),
    # --- planners ---
    Mutant(
        "the bonus counts visits without their logarithm",
        "planners",
        "jnp.log1p(jnp.sum(N))",
        "jnp.sum(N)",
        "test_tree_search.py::ucb_formula",
    ),
    Mutant(
        "unvisited actions last",
        "planners",
        "jnp.where(N > 0, Q + bonus, untried)",
        "jnp.where(N > 0, Q + bonus, -untried)",
        "test_tree_search.py::prefers_unvisited",
    ),
    Mutant(
        "ties go to the first",
        "core",
        "jnp.where(score == jnp.max(score), tie_break, -1)",
        "score",
        "test_tree_search.py::prefers_unvisited",
    ),
    Mutant(
        "returns are not discounted back to their level",
        "planners",
        "G = (total - before) / power(problem.pomdp.discount, now.level)",
        "G = total - before",
        "test_tree_search.py::own_level or plain_version",
    ),
    Mutant(
        "terminal steps do not end a simulation",
        "planners",
        "end = world.is_terminal(now.s, a, s_next) | (now.level + 1 >= limit)",
        "end = now.level + 1 >= limit",
        "test_tree_search.py::terminal",
    ),
    Mutant(
        "the search looks one step too far",
        "planners",
        "(now.level + 1 >= limit)",
        "(now.level >= limit)",
        "test_tree_search.py::steps_left",
    ),
    Mutant(
        "the leaf's value is not discounted",
        "planners",
        "jnp.where(leaf, gamma * below, 0)",
        "jnp.where(leaf, below, 0)",
        "test_tree_search.py::leaf_value",
    ),
    Mutant(
        "children of different observations are one",
        "planners",
        "jnp.all(self.o[window] == o[None], axis=1)",
        "jnp.all(self.o[window] >= 0, axis=1)",
        "test_children.py::equal_hashes",
    ),
    Mutant(
        "children of different actions are one",
        "planners",
        "(self.entry[window] == entry)",
        "(self.entry[window] >= 0)",
        "test_children.py::dictionary",
    ),
    Mutant(
        "simulations in flight choose without seeing each other",
        "planners",
        "return N + (beside[:, None] & (actions == a)[None]).astype(N.dtype), a",
        "return N, a",
        "test_choice.py::in_turn or evenly",
    ),
    Mutant(
        "simulations in flight see what others chose elsewhere",
        "planners",
        "same = site[:, None] == site[None]",
        "same = site[:, None] == site[:, None]",
        "test_choice.py::in_turn",
    ),
    Mutant(
        "illegal actions are simulated",
        "planners",
        "jnp.where(seen.legal, found, -jnp.inf)",
        "found",
        "test_choice.py::illegal",
    ),
    Mutant(
        "preferred actions are like any other",
        "planners",
        "jnp.where(seen.preferred, jnp.inf, seen.average + bonus)",
        "jnp.inf",
        "test_choice.py::preferred",
    ),
    Mutant(
        "earlier visits keep their old value",
        "planners",
        "here[:, 0] * V - here[:, 1]",
        "0 * V",
        "test_round_trip.py::up_to_date",
    ),
    Mutant(
        "all who arrive bring the earlier visits up to date",
        "planners",
        "jnp.where(is_first(child, inner), here",
        "jnp.where(inner, here",
        "test_round_trip.py::up_to_date",
    ),
    Mutant(
        "Bellman's value is a mean",
        "planners",
        "jnp.where(tried >= here[4], best, mean)",
        "mean",
        "test_round_trip.py::up_to_date",
    ),
    Mutant(
        "a rollout's return is not discounted back to its leaf",
        "planners",
        "(after.total - path.before) / power(gamma, path.levels)",
        "after.total - path.before",
        "test_tree_search.py::own_level",
    ),
    Mutant(
        "an upper bound is for the wrong number of steps",
        "planners",
        "jnp.where(at.new, leaf_values(problem, step.s_next, limit - now.level - 1), 0)",
        "jnp.where(at.new, leaf_values(problem, step.s_next, limit - now.level), 0)",
        "test_round_trip.py::upper",
    ),
    Mutant(
        "by paths, nobody sees what leads to a child",
        "fast",
        "looks = alone.in_tree & (alone.level + 1 < world.limit)",
        "looks = ~alone.in_tree & (alone.level + 1 < world.limit)",
        "test_twins.py::plans_are_the_same and paths",
    ),
    Mutant(
        "by paths, a rollout's return is not discounted back to its leaf",
        "fast",
        "below = (now.total - path.before) / power(problem.pomdp.discount, path.levels)",
        "below = now.total - path.before",
        "test_twins.py::plans_are_the_same and paths",
    ),
    Mutant(
        "learned values go on after the end of an episode",
        "planners",
        "return jnp.where(goes_on, values_at(weights[None], self.features(s_next))[0], 0)",
        "return values_at(weights[None], self.features(s_next))[0]",
        "test_fitted.py::suffice",
    ),
    Mutant(
        "the belief tree writes its children one place too far",
        "planners",
        "written(search.tree, e - 1)",
        "written(search.tree, e)",
        "test_belief_tree.py::full_expansion",
    ),
    Mutant(
        "the belief tree expands the least gap",
        "planners",
        "jnp.argmax(gap).astype(jnp.int32)",
        "jnp.argmin(gap).astype(jnp.int32)",
        "test_belief_tree.py::full_expansion",
    ),
    Mutant(
        "of equal lower bounds the least upper one is chosen",
        "core",
        "plan.upper, -jnp.inf))",
        "-plan.upper, -jnp.inf))",
        "test_belief_tree.py::as_good_as_equal",
    ),
    # --- posteriors ---
    Mutant(
        "transitions are counted backwards",
        "posteriors",
        "theta.T.at[i, a, i_next].add(1)",
        "theta.T.at[i_next, a, i].add(1)",
        "test_paper.py::def_3_dirichlet",
    ),
    Mutant(
        "observations are counted at the state before",
        "posteriors",
        "theta.O.at[a, i_next, z].add(1)",
        "theta.O.at[a, i, z].add(1)",
        "test_paper.py::def_3_dirichlet",
    ),
    Mutant(
        "the variance of a Dirichlet entry lacks its + 1",
        "posteriors",
        "return mean, mean * (1 - mean) / (total + 1)",
        "return mean, mean * (1 - mean) / total",
        "test_belief_update.py::filters_match and h02",
    ),
    Mutant(
        "U ascends, as Eq. 14 is printed",
        "posteriors",
        "return theta - self.architecture.network.learning_rate * self.gradient(theta, masks, step)",
        "return theta + self.architecture.network.learning_rate * self.gradient(theta, masks, step)",
        "test_dropout.py::descending",
    ),
    Mutant(
        "kept nodes are not scaled",
        "posteriors",
        "h = jnp.where(keep[i], h * (1 / (1 - p)), 0)",
        "h = jnp.where(keep[i], h, 0)",
        "test_dropout.py::independent_network",
    ),
    Mutant(
        "nodes are dropped with 1 - p",
        "posteriors",
        "q = round((1 - network.dropout) * 2**MASK_BITS)",
        "q = round(network.dropout * 2**MASK_BITS)",
        "test_dropout.py::mask_frequencies",
    ),
    Mutant(
        "both networks have one mask",
        "posteriors",
        'network, words = self.architecture.network, self.masks["TO".index(net)]',
        "network, words = self.architecture.network, self.masks[0]",
        "test_dropout.py::independent_network or all_masks",
    ),
    Mutant(
        "a network that must not learn learns",
        "posteriors",
        "if not learn or n == 0:",
        "if n == 0:",
        "test_dropout.py::frozen_network",
    ),
    Mutant(
        "every particle is the first network",
        "posteriors",
        "return self.ensemble[uniform_integers(key, np.asarray(self.num_networks))]",
        "return self.ensemble[0]",
        "test_dropout.py::drawn_uniformly",
    ),
    Mutant(
        "known nodes are counted, too",
        "posteriors",
        "theta.counts.at[jnp.where(grows, index, theta.counts.shape[0])]",
        "theta.counts.at[index]",
        "test_factored.py::known_node",
    ),
    Mutant(
        "absent parents still choose the row",
        "posteriors",
        "here = jnp.where((number < 0) | edges[number], here, 0)",
        "here = jnp.where((number < 0) | (number >= 0), here, 0)",
        "test_factored.py::enumeration",
    ),
    Mutant(
        "the prior of an absent parent is a sum",
        "posteriors",
        "jnp.mean(rows, axis=axis, keepdims=True)",
        "jnp.sum(rows, axis=axis, keepdims=True)",
        "test_factored.py::absent_parents",
    ),
    Mutant(
        "the filtering agent learns",
        "posteriors",
        "    ) -> Theta:\n        return theta\n",
        "    ) -> Theta:\n        return self.posterior.update(key, theta, s, a, s_next, o)\n",
        "test_belief_update.py::frozen",
    ),
    # --- the engine room ---
    Mutant(
        "rows of another particle are read",
        "fast",
        "return self.posterior.dynamics_among(thetas, i, epsilon)",
        "return self.posterior.dynamics_among(thetas, 0 * i, epsilon)",
        "test_twins.py::beliefs_are and factored",
    ),
    Mutant(
        "what is frozen forgets who its ancestor was",
        "fast",
        "return tree_at_index(thetas, i)\n\n\nclass PartialModels",
        "return thetas\n\n\nclass PartialModels",
        "test_twins.py::beliefs_are and frozen",
    ),
    Mutant(
        "both halves of D learn with one key",
        "fast",
        "self.observation.update(keys_O, thetas[1], i, steps, learn)",
        "self.observation.update(keys_T, thetas[1], i, steps, learn)",
        "test_twins.py::beliefs_are and learned",
    ),
    Mutant(
        "a particle that must not learn learns",
        "fast",
        "return jnp.where(learn, self.posterior.descend(theta, masks, step), theta)",
        "return self.posterior.descend(theta, masks, step)",
        "test_twins.py::beliefs_are and dropout",
    ),
    Mutant(
        "a kernel's network learns though it must not",
        "fast",
        "dy = jnp.where(learn & learns, dy, 0)",
        "dy = jnp.where(learns, dy, 0)",
        "test_twins.py::kernels_give_the_same_beliefs",
    ),
    Mutant(
        "networks that draw anew are tabulated",
        "fast",
        "return not posterior.architecture.network.redraw_masks",
        "return True",
        "test_twins.py::plans and redrawn",
    ),
    Mutant(
        "the tables of T are those of another input",
        "fast",
        "return _look_up(self.table_T, self.rows.T, [self._rank(s), a])",
        "return _look_up(self.table_T, self.rows.T, [1 - self._rank(s), a])",
        "test_twins.py::plans and dropout",
    ),
    Mutant(
        "all runs have the particles of the first",
        "fast",
        "results = function(flat(thetas), flat(i + first[:, None]), *flat(draws))",
        "results = function(flat(thetas), flat(i), *flat(draws))",
        "test_loops.py::their_own_particles",
    ),
    Mutant(
        "runs in place are written to the next place",
        "fast",
        "lambda all, one: all.at[i].set(one)",
        "lambda all, one: all.at[i - 1].set(one)",
        "test_loops.py::in_place",
    ),
    Mutant(
        "runs that are done go on",
        "fast",
        "active = (runs.episode < num_episodes) & ~runs.failed",
        "active = ~runs.failed",
        "test_twins.py::life",
    ),
    Mutant(
        "an inactive belief moves",
        "fast",
        "learn((runs.belief, runs.memory), keys, outcome, last, active, runs.prepared)",
        "learn((runs.belief, runs.memory), keys, outcome, last, active | True, runs.prepared)",
        "test_twins.py::life",
    ),
    Mutant(
        "a POMDP that is traced is converted",
        "fast",
        "    if any(isinstance(x, Tracer) for x in found):\n        raise",
        "    if False:\n        raise",
        "test_twins.py::traced",
    ),
    Mutant(
        "what matters is not known while something compiles",
        "fast",
        "with jax.ensure_compile_time_eval():  # op by op",
        "if True:  # op by op",
        "test_twins.py::inside_jit",
    ),
    Mutant(
        "side by side no node is dropped",
        "fast",
        "h = h.reshape(n, A, -1) * self.scale[:, j, None]",
        "h = h.reshape(n, A, -1)",
        "test_network_draws.py::that_of_each",
    ),
    Mutant(
        "draws of a particle lie apart",
        "fast",
        "order = np.arange(n).reshape(-1, num_particles).T.reshape(-1)",
        "order = np.arange(n)",
        "test_network_draws.py::in_order or that_of_each",
    ),
    Mutant(
        "a policy whose episode has ended still loses",
        "fast",
        "most = max(0.0, float(np.max(fast_informed_bound(model))))",
        "most = float(np.max(fast_informed_bound(model)))",
        "test_known_bounds.py::between",
    ),
    Mutant(
        "policies of a simulator serve beliefs that are not certain",
        "fast",
        "jnp.where(spread_of(log_p) <= CERTAIN * self.spread, nearest, NONE)",
        "nearest",
        "test_solved_simulators.py::nearest_is_found",
    ),
    Mutant(
        "the simulator that is least like the belief serves",
        "fast",
        "nearest = jnp.argmin(jnp.sum((self.log_p",
        "nearest = jnp.argmax(jnp.sum((self.log_p",
        "test_solved_simulators.py::nearest_is_found",
    ),
    Mutant(
        "a solved policy earns after the last step",
        "planners/belief_tree",
        " - self.later[last(self.later)]",
        " + 0 * self.later[last(self.later)]",
        "test_solved_simulators.py::own_simulator",
    ),
    Mutant(
        "policies of no model promise something",
        "planners/belief_tree",
        "jnp.where(which == NONE, NOTHING, found)",
        "found",
        "test_solved_simulators.py::no_model",
    ),
    Mutant(
        "few vectors forget where an episode starts",
        "solve",
        'kind="stable")[: most // 2]]',
        'kind="stable")[:0]]',
        "test_solved_simulators.py::starts_with",
    ),
    Mutant(
        "that an episode goes on tells nothing",
        "core",
        "if terminal is not None and state_tells_ends(gba.pomdp) else None",
        "if False else None",
        "test_outcome.py::evidence or knows_it or solver_says",
    ),
    Mutant(
        "a step that is not learned from is weighed",
        "core",
        "belief, info = self.filter.update(key, gba, belief, a, o, on, on & active)",
        "belief, info = self.filter.update(key, gba, belief, a, o, on, active)",
        "test_outcome.py::skips_it",
    ),
    Mutant(
        "a policy earns after the last step",
        "fast",
        "vectors = alphas[None] - later[:, None, None]",
        "vectors = alphas[None] + 0 * later[:, None, None]",
        "test_known_bounds.py::between",
    ),
    # --- domains ---
    Mutant(
        "tiger's good door is the bad one",
        "domains/tiger",
        "jnp.where(a == s[0], 10.0, -100.0)",
        "jnp.where(a != s[0], 10.0, -100.0)",
        "test_tiger.py::tiger",
    ),
    Mutant(
        "tiger never ends",
        "domains/tiger",
        "return a != LISTEN",
        "return a < 0",
        "test_tiger.py::tiger",
    ),
    Mutant(
        "the car right ahead comes closer",
        "domains/road_racing",
        "jnp.where(own_lane & (s[1:] == 1), 0, self.speeds)",
        "self.speeds",
        "test_road_racing.py::every_transition",
    ),
    Mutant(
        "a failed move costs nothing",
        "domains/road_racing",
        "failed = (a != STAY) & (s_next[0] != s[0] + a - STAY)",
        "failed = (a != STAY) & (s_next[0] != s_next[0])",
        "test_road_racing.py::every_transition",
    ),
    Mutant(
        "cars do not block the way",
        "domains/road_racing",
        "return jnp.where(distances[wanted] == 0, lane, wanted)",
        "return wanted",
        "test_road_racing.py::every_transition",
    ),
    Mutant(
        "noise is rounded down",
        "domains/collision_avoidance",
        "np.arange(size - 1)[None] + 0.5",
        "np.arange(size - 1)[None] + 1.0",
        "test_collision_avoidance.py::noise_table",
    ),
    Mutant(
        "a collision before the last column counts",
        "domains/collision_avoidance",
        "collision = (s_next[0] == 0) & (s_next[1] == s_next[2])",
        "collision = s_next[1] == s_next[2]",
        "test_collision_avoidance.py::exact_returns",
    ),
    Mutant(
        "left and right are one",
        "domains/gridverse",
        "jnp.where(a == LEFT, 3, 1)",
        "jnp.where(a == LEFT, 1, 1)",
        "test_gridverse.py::second_version",
    ),
    Mutant(
        "the beam is mirrored",
        "domains/gridverse",
        "np.array([[[-1], [0], [1]]], np.int32)",
        "np.array([[[1], [0], [-1]]], np.int32)",
        "test_gridverse.py::drawn_by_hand",
    ),
    Mutant(
        "failed neighbours infect nobody",
        "domains/sysadmin",
        "(1 - rates.infection) ** failed_neighbours",
        "(1 - rates.infection) ** 0",
        "test_graphs.py::sysadmin_against",
    ),
    Mutant(
        "the prior of computers knows how they truly fail",
        "domains/sysadmin",
        "Rates(settings.prior_failure, settings.prior_infection)",
        "Rates(settings.failure, settings.infection)",
        "test_graphs.py::sysadmin_with_rates",
    ),
    Mutant(
        "reboots are free",
        "domains/sysadmin",
        "jnp.where(a >= len(self.state_sizes), REBOOT_COST, 0.0)",
        "jnp.where(a < 0, REBOOT_COST, 0.0)",
        "test_graphs.py::sysadmin_rewards",
    ),
    # --- what is the user's own ---
    Mutant(
        "a malformed posterior is not refused",
        "agents",
        "refuse_malformed(groups, gba, filter, planner)",
        "pass",
        "test_toys.py::bad_one",
    ),
    Mutant(
        "an update may change the shape of theta",
        "agents",
        "if described(x) != described(y):",
        "if False:",
        "test_toys.py::bad_one",
    ),
    Mutant(
        "another kind of filter forgets the settings",
        "agents",
        "replace(new, **same)",
        "new",
        "test_toys.py::another_kind",
    ),
    Mutant(
        "a file that has changed is resumed",
        "lab",
        "if now.get(group) != digest:",
        "if False:",
        "test_toys.py::changed and filter",
        equivalent="sources.py has refused the file before: this is the second lock",
    ),
    Mutant(
        "plans are compared in one order",
        "agents",
        "program(keys, IN_ORDER[::-1]))",
        "program(keys[::-1], IN_ORDER))",
        "test_trials.py::good_planner",
    ),
    Mutant(
        "an untried action's value matters",
        "agents",
        "np.isfinite(plan.Q[plan.N > 0])",
        "np.isfinite(plan.Q)",
        "test_trials.py::untried",
    ),
    Mutant(
        "weights may sum to anything",
        "agents",
        "if not abs(total - 1) <= TOLERANCE:",
        "if np.isnan(total):",
        "test_trials.py::broken_filter",
    ),
    Mutant(
        "any filter is close enough to the exact belief",
        "agents",
        "if not abs(left - p) <= bound:",
        "if np.isnan(left):",
        "test_trials.py::broken_filter",
    ),
    Mutant(
        "the criterion is looked at before any step",
        "agents",
        "exact.full_histories(shape, depths[0])",
        "exact.full_histories(shape, 0)",
        "test_trials.py::criterion",
    ),
    Mutant(
        "RMSProp has epsilon in the root",
        "agents",
        "eps_in_sqrt=False",
        "eps_in_sqrt=True",
        "test_learners.py::rmsprop",
    ),
    Mutant(
        "gradients are not clipped",
        "agents",
        "optax.clip_by_global_norm(settings.max_gradient_norm),",
        "optax.identity(),",
        "test_learners.py::clipping",
    ),
    # --- statistics ---
    Mutant(
        "an interval of 90 % is called one of 95 %",
        "lab",
        "low, high = np.quantile(deviations, [0.025, 0.975]) * widening(df)",
        "low, high = np.quantile(deviations, [0.05, 0.95]) * widening(df)",
        "test_statistics.py::interval",
    ),
    Mutant(
        "the interquartile mean takes all runs",
        "lab",
        "np.clip(np.minimum(i + 1, 3 * n / 4) - np.maximum(i, n / 4), 0, None)",
        "np.ones(n)",
        "test_statistics.py::interquartile",
    ),
    Mutant(
        "a level is reached an episode early",
        "lab",
        "return float(reached[0] + window) if len(reached) else np.inf",
        "return float(reached[0] + window - 1) if len(reached) else np.inf",
        "test_statistics.py::reach",
    ),
    Mutant(
        "a paired difference takes the last run for each",
        "lab",
        "[ours[run] - theirs[run] for run in common]",
        "[ours[run] - theirs[common[-1]] for run in common]",
        "test_statistics.py::paired",
    ),
    Mutant(
        "windows overlap",
        "lab",
        "return list(range(window, episodes + 1, window)) or [episodes]",
        "return list(range(1, episodes + 1, window)) or [episodes]",
        "test_statistics.py::curve_averages",
    ),
    Mutant(
        "few runs have narrow intervals",
        "lab",
        "return t_quantile(df) / t_quantile(np.inf)",
        "return np.ones_like(df)",
        "test_statistics.py::few_runs_hold",
    ),
    # --- explore, and what a policy is worth ---
    Mutant(
        "acting from an earlier moment keeps the later ones",
        "lab",
        "[*self.moments[: self.now + 1], self._thought(moment)]",
        "[*self.moments, self._thought(moment)]",
        "test_explore.py::back_and_forth",
    ),
    Mutant(
        "any token opens the page",
        "lab",
        "return secrets.compare_digest(given.encode(), self.token.encode())",
        "return True",
        "test_explore.py::wrong_token",
    ),
    Mutant(
        "a policy is always at its first step",
        "solve",
        "a = act(solution, b, horizon - t)",
        "a = act(solution, b, horizon)",
        "test_worth.py::all_histories",
    ),
    # --- claims ---
    Mutant(
        "an interval that reaches out of its region is held",
        "paper",
        "if self.at_least <= low and high <= self.at_most:",
        "if self.at_least <= high and low <= self.at_most:",
        "test_reproduce.py::verdict",
    ),
    Mutant(
        "a short experiment may judge",
        "paper",
        "short = 0 < found.episodes < self.after",
        "short = False",
        "test_reproduce.py::short_curve",
    ),
    Mutant(
        "four ensembles are enough for a verdict",
        "paper",
        "FEWEST_ENSEMBLES = 5",
        "FEWEST_ENSEMBLES = 4",
        "test_claims.py::four_units",
    ),
    Mutant(
        "a crash that was not seen cannot happen",
        "paper",
        "found = allowing(seen, rare(data, terms, values), data.times)",
        "found = seen",
        "test_claims.py::four_units",
    ),
    Mutant(
        "disasters are counted in episodes, whoever learns",
        "paper",
        "single = term.curve in data.forgetful",
        "single = True",
        "test_claims.py::disasters_cluster",
    ),
    Mutant(
        "what was not seen happens to one unit in n",
        "lab",
        "UNSEEN = -np.log(0.05)",
        "UNSEEN = 1.0",
        "test_claims.py::disasters_cluster",
    ),
    Mutant(
        "runs that share networks are as good as ensembles",
        "paper",
        '(curve in data.networks or s.unit == "ensembles") and',
        's.unit == "ensembles" and',
        "test_claims.py::share_their_networks",
    ),
    Mutant(
        "verdicts at the plain 95 %",
        "lab",
        "JUDGED = 0.995",
        "JUDGED = 0.95",
        "test_claims.py::seldom_wrong_of_ensembles",
    ),
    Mutant(
        "the last quarter is the last half",
        "paper",
        "episodes - max(1, episodes // 4)",
        "episodes - max(1, episodes // 2)",
        "test_reproduce.py::by_hand",
    ),
    Mutant(
        "a bound that was not reached is a number",
        "paper",
        'learners", never, episodes',
        'learners", False, episodes',
        "test_reproduce.py::reach or episodes or never or bound",
    ),
    Mutant(
        "our curve plans as the paper's does",
        "paper",
        "experiment=e.changed(planner=tree),",
        "experiment=e,",
        "test_reproduce.py::published_planner",
    ),
    Mutant(
        "a figure's curves plan as the quick preset does",
        "paper",
        "start = published(domain, agent, sizes.preset)",
        "start = preset(domain.name, agent, sizes.preset, domain)",
        "test_reproduce.py::published_planner",
    ),
    Mutant(
        "quick figures have simulations in flight",
        "paper",
        'replace(planner, in_flight=1, backup="mean")',
        'replace(planner, backup="mean")',
        "test_reproduce.py::published_planner",
    ),
    Mutant(
        "a claim is about our curve",
        "paper",
        'difference("baddr", "ba-pomcp", "last")',
        'difference("baddr-tree", "ba-pomcp", "last")',
        "test_reproduce.py::planner_alone",
    ),
    # --- the store ---
    Mutant(
        "a damaged checkpoint is whole",
        "files",
        "return hashlib.sha256(payload).hexdigest().encode() == digest",
        "return len(digest) == 64",
        "test_store.py::damaged",
    ),
    Mutant(
        "the oldest checkpoint is the newest",
        "files",
        "for path in reversed(self._checkpoints(chunk)):",
        "for path in self._checkpoints(chunk):",
        "test_store.py::checkpoint",
    ),
    Mutant(
        "two programs own a folder",
        "files",
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "test_store.py::owner",
    ),
    Mutant(
        "a folder with something in it is taken",
        "files",
        "any(map(_is_of_value, self.path.iterdir()))",
        "False",
        "test_store.py::something_else",
    ),
    Mutant(
        "no older checkpoint is kept",
        "files",
        "KEPT = 2",
        "KEPT = 1",
        "test_store.py::damaged",
    ),
    # --- the solver ---
    Mutant(
        "the sawtooth takes too much of a point",
        "solve",
        "portion = 1 / (p.T[:, :, None] * self.inverse.T[:, None]).max(axis=0)",
        "portion = 1 / (p.T[:, :, None] * self.inverse.T[:, None]).mean(axis=0)",
        "test_bounds.py::new_have_the_bounds",
    ),
    Mutant(
        "points outside of the support count",
        "solve",
        "inside = p.sum(axis=1) > ALMOST_ONE",
        "inside = p.sum(axis=1) > 0",
        "test_bounds.py::new_have_the_bounds",
    ),
    Mutant(
        "a new row forgets the newest vectors",
        "solve",
        "return np.concatenate([useful[useful >= self.seen], np.arange(settled, size)])",
        "return useful[useful >= self.seen]",
        "test_bounds.py::newest",
    ),
    Mutant(
        "the informed bound averages over the next action",
        "solve",
        "best = np.max(table @ np.ascontiguousarray(Q.T), axis=1)",
        "best = np.mean(table @ np.ascontiguousarray(Q.T), axis=1)",
        "test_bounds.py::its_equation",
    ),
    Mutant(
        "bounds without a horizon start on the other side",
        "solve",
        "Q = Q + sign * scale",
        "Q = Q - sign * scale",
        "test_bounds.py::from_above or solve_their_equation",
    ),
    Mutant(
        "an episode that has ended is worth something",
        "solve",
        "on = T if terminal is None else np.where(terminal, 0.0, T)",
        "on = T",
        "test_listing.py::terminal_transitions",
    ),
    Mutant(
        "a listed transition that ends the episode is kept",
        "solve",
        "on = follows.at(~ends)",
        "on = follows.at(ends | ~ends)",
        "test_listing.py::those_of_the_dynamics",
    ),
    Mutant(
        "a sweep over points takes the worst action",
        "solve",
        "return np.minimum(v, Q.max(axis=1))",
        "return np.minimum(v, Q.min(axis=1))",
        "test_point_based.py::sweeps or enclose",
    ),
    Mutant(
        "a policy lacks what its vectors refer to",
        "solve",
        "wanted[left - 1] |= after",
        "wanted[left - 1] |= set()",
        "test_bounds.py::refer_to",
    ),
    Mutant(
        "a vector is that of a step more",
        "solve",
        "self.layers[left - 2 if self.horizon is not None else 0]",
        "self.layers[left - 1 if self.horizon is not None else 0]",
        "test_point_based.py::horizon_both",
    ),
    Mutant(
        "a vector is backed up without a discount",
        "solve",
        "return model.R[a] + model.discount * (model.T[a] @ ahead.T).T",
        "return model.R[a] + (model.T[a] @ ahead.T).T",
        "test_bounds.py::backup_is_its_equation",
    ),
    Mutant(
        "what depends on the state before is not looked at",
        "solve",
        "    _refuse_dependence_on_s(pomdp, D, on, which, Seen(row, o, p))\n",
        "",
        "test_listing.py::state_before",
    ),
    Mutant(
        "rows that draws find in part are kept",
        "solve",
        "found, missing = [drawn.at(whole[row])], np.flatnonzero(~whole)",
        "found, missing = [drawn], np.arange(0)",
        "test_listing.py::not_find_whole",
    ),
    Mutant(
        "a solution is found for another horizon",
        "solve",
        "asked = CODE_VERSION, model.discount, horizon,",
        "asked = CODE_VERSION, model.discount,",
        "test_policy.py::made_once",
    ),
    Mutant(
        "agent optimal takes the vectors of a step more",
        "solve",
        "layer = jnp.clip(steps_left - 1, 0,",
        "layer = jnp.clip(steps_left, 0,",
        "test_optimal.py::steps_left",
    ),
    # --- banks, mixtures and wide priors ---
    Mutant(
        "a bank learns nothing from transitions",
        "posteriors",
        "self.each(lambda D: D.log_prob(s, a, s_next, o))",
        "self.each(lambda D: D.observation_log_prob(s, a, s_next, o))",
        "test_bank.py::def_3",
    ),
    Mutant(
        "the exact filter keeps the states of the last episode",
        "posteriors",
        "jnp.log(_reach(gba).start)[:, None] + of_members(table_of(belief))[None]",
        "table_of(belief)",
        "test_bank.py::filter_is_brute_force",
    ),
    Mutant(
        "members of a bank share a scale",
        "posteriors",
        "scale = jnp.max(before, axis=0, keepdims=True)",
        "scale = jnp.max(before, keepdims=True)",
        "test_bank.py::rounding",
    ),
    Mutant(
        "the next episode has the members' weights of each state",
        "life",
        "if new.theta is not theta:",
        "if theta is None:",
        "test_bank.py::after_the_last_step",
    ),
    Mutant(
        "a small part of a mixture may be missing by chance",
        "posteriors",
        "which = systematic_indices(keys[0], self._weights, keys.shape[0])",
        "which = jax.vmap(lambda key: categorical(key, self._weights))(keys)",
        "test_mixture.py::small_part",
    ),
    Mutant(
        "all parts of a mixture learn",
        "posteriors",
        "return jnp.where(mine, new, old)",
        "return new",
        "test_mixture.py::of_its_part",
    ),
    Mutant(
        "stepping back goes through walls",
        "domains",
        "jnp.clip(length, -free[0].astype(jnp.int32), ahead)",
        "jnp.clip(length, -1, ahead)",
        "test_wide.py::behind",
    ),
    # --- one network for all simulators ---
    Mutant(
        "Latent takes no account of how wide theta is",
        "posteriors",
        "    return 1 / jnp.sqrt(1 + math.pi / 8 * 2 * spread / (chance + TINY))",
        "    return jnp.ones_like(spread)",
        "test_latent.py::moderated",
    ),
    Mutant(
        "evidence does not narrow the theta of Latent",
        "posteriors",
        "jnp.eye(d, dtype=F.dtype) + F, theta.factor",
        "jnp.eye(d, dtype=F.dtype), theta.factor",
        "test_latent.py::adds_precisions",
    ),
    Mutant(
        "Gaussians about the simulators are as wide as the prior",
        "posteriors",
        "jnp.broadcast_to(width * jnp.eye(z.shape[1]), (*z.shape, z.shape[1]))",
        "jnp.broadcast_to(jnp.eye(z.shape[1]), (*z.shape, z.shape[1]))",
        "test_latent.py::moments_of_the_prior",
    ),
    Mutant(
        "all particles of Latent start about the first simulator",
        "posteriors",
        "jr.randint(key, (), 0, self.start.mean.shape[0])",
        "0",
        "test_latent.py::about_a_simulator",
    ),
    Mutant(
        "a long training is sixteen blocks, and Ctrl-C waits for one of them",
        "fast",
        "number = max(NUM_BLOCKS, -(-batches // LONGEST_BLOCK))",
        "number = NUM_BLOCKS",
        "test_start.py::looks_up_often",
    ),
    Mutant(
        "a suite looks at the size of its first part only",
        "lab",
        "if alike not in seen:",
        "if not seen:",
        "test_limits.py::no_part_starts",
    ),
    Mutant(
        "a Ctrl-C in a destructor is dropped",
        "cli",
        "threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()",
        "pass",
        "test_cli.py::destructor",
    ),
    Mutant(
        "the derivative of Latent forgets what z adds to the outputs",
        "posteriors",
        "@ self.layers[-1][0] + self.of_z.outputs",
        "@ self.layers[-1][0]",
        "test_latent.py::finite_differences",
    ),
    Mutant(
        "the fast update of Latent keeps the mean of J",
        "fast",
        "    g = jnp.sum(J * outcome[:, None], axis=2) - jnp.sum(mean, axis=2)\n",
        "    g = jnp.sum(J * outcome[:, None], axis=2)\n",
        "test_twins.py::latent",
    ),
    Mutant(
        "a mixture plans with its first part alone",
        "fast",
        "chosen(thetas.which[i][:, None, None]",
        "chosen(0 * thetas.which[i][:, None, None]",
        "test_twins.py::plans_are_the_same and mixture",
    ),
    Mutant(
        "the prior of Latent is as narrow as the means of q",
        "fast",
        " + jnp.diag(jnp.mean(jnp.exp(2 * log_sd), axis=0))",
        "",
        "test_pretrain_latent.py::prior_has_the_moments",
    ),
    Mutant(
        "no log odds are read of simulators",
        "fast",
        "if np.all((x >= 0) & (x <= 1)):",
        "if False:",
        "test_codes.py::not_read",
    ),
    Mutant(
        "black boxes are read by their number",
        "fast",
        "if not differing or any(_is_number(x, x.shape[1:]) for x in differing):",
        "if not differing:",
        "test_codes.py::black_box",
    ),
    Mutant(
        "a code that is read lacks its linear map",
        "fast",
        "return mean + x @ self.linear, log_sd",
        "return mean, log_sd",
        "test_codes.py::codes_that_are_read",
    ),
    # --- files, black boxes and many copies ---
    Mutant(
        "the first rule of a place holds",
        "domains",
        "    return Latest(place[keep], time[keep], value[keep])",
        "    return Latest(place[keep], -time[keep], value[keep])",
        "domains/test_files.py::rules_hold or rewards_hold",
    ),
    Mutant(
        "steps into an end state earn on",
        "domains",
        "T, R = tuple(csr_array(on @ table @ on) for table in T), np.where(model.ends, 0.0, R)",
        "T, R = tuple(csr_array(on @ table) for table in T), np.where(model.ends, 0.0, R)",
        "domains/test_files.py::end_states",
    ),
    Mutant(
        "a factor forgets the probability of its parents",
        "domains",
        "self.p[row] * factor.value[place]",
        "factor.value[place]",
        "domains/test_files.py::pomdpx",
    ),
    Mutant(
        "counts by steps forget the action",
        "posteriors",
        "return a * int(np.prod(self.state_sizes)) + i, (self.seen.s == i) & (self.seen.a == a)",
        "return a * int(np.prod(self.state_sizes)) + i, (self.seen.s == i)",
        "domains/test_sparse.py::counts_of_steps",
    ),
    Mutant(
        "a sparse row never draws what it does not hold",
        "posteriors",
        "rest = (u >= held) & (self.floor > 0)",
        "rest = (u < 0) & (self.floor > 0)",
        "domains/test_sparse.py::draws_come",
    ),
    Mutant(
        "several black boxes are the first one",
        "domains",
        "BlackBox(jr.randint(key, (), 0, len(steps), jnp.int32), steps, *sizes)",
        "BlackBox(jnp.int32(0), steps, *sizes)",
        "domains/test_black_box.py::draws_what",
    ),
    # --- the suite and its domains ---
    Mutant(
        "an outside agent may add an episode twice",
        "bench",
        "wrong = np.flatnonzero(episode != np.arange(len(which)) - first[which])",
        "wrong = np.flatnonzero(episode < 0)",
        "test_scores.py::does_not_fit",
    ),
    Mutant(
        "two runs prove that there is something to learn",
        "bench",
        "CLEAR * self.error * widening(self.runs - 1.0)",
        "CLEAR * self.error",
        "test_scores.py::two_runs",
    ),
    Mutant(
        "whoever removes a folder's hash may edit its settings",
        "lab",
        "return tie | {name: manifest.get(name) for name in names}",
        "return tie | {name: manifest[name] for name in names if name in manifest}",
        "test_ties.py::lost",
    ),
    Mutant(
        "the filter of an agent that is a value is not checked",
        "lab",
        'refuse(problems(agent.filter, "filter."))',
        "pass",
        "test_run.py::values_are_checked",
    ),
    Mutant(
        "a score forgets the prior",
        "bench",
        "return (returns - self.prior) / (gap if gap != 0 else np.nan)",
        "return returns / (gap if gap != 0 else np.nan)",
        "test_scores.py::references",
    ),
    Mutant(
        "intervals of scores forget the references",
        "bench",
        "prior, truth = scale.draws[:, :1], scale.draws[:, 1:]",
        "prior, truth = scale.draws.mean(0)[None, :1], scale.draws.mean(0)[None, 1:] + 0.5",
        "test_scores.py::references or cover",
    ),
    Mutant(
        "one lucky block has reached .9",
        "bench",
        "reached = np.flatnonzero((score >= REACHED) & (rest >= REACHED))",
        "reached = np.flatnonzero(score >= REACHED)",
        "test_scores.py::nine_tenths",
    ),
    Mutant(
        "a domain's own bounds are all that a known model has",
        "fast",
        "    if tables is None:\n",
        "    if tables is None or None not in how.own:\n",
        "test_known_bounds.py::own_bounds",
    ),
    Mutant(
        "a joined suite notes what another one's parts took",
        "bench",
        "for manifest in reversed(manifests)]",
        "for manifest in manifests]",
        "test_join.py::costs",
    ),
    Mutant(
        "suites of any sizes are joined",
        "bench",
        "if getattr(request, name) != getattr(first, name):",
        "if name == 'preset' and request.preset != first.preset:",
        "test_join.py::same_sizes",
    ),
    Mutant(
        "a sampled rock stays good",
        "domains/rock_sample",
        "jnp.where(sampled, 0, s[2:])",
        "s[2:]",
        "test_rock_sample.py::second_version",
    ),
    Mutant(
        "tours come home in time, always",
        "domains/rock_sample",
        "jnp.where(left[cell] < steps_left, value[cell, good(s)], found.least)",
        "value[cell, good(s)]",
        "test_rock_sample.py::too_short",
    ),
    Mutant(
        "the opponent comes nearer where it should run",
        "domains/tag",
        "np.array([share, 1 - share])",
        "np.array([1 - share, share])",
        "test_tag.py::every_move",
    ),
    Mutant(
        "ships may touch",
        "domains/battleship",
        '_grown(mask, n) if settings.rules == "apart" else mask',
        "mask",
        "test_battleship.py::every_fleet",
    ),
    # --- reliability ---
    Mutant(
        "a suite executes whatever its domains name",
        "bench",
        "        if not self.trust:\n",
        "        if False:\n",
        "test_foreign.py::on_record",
    ),
    Mutant(
        "a part may be of any seed",
        "lab",
        "return [name for name in mine if mine[name] != theirs[name]]",
        "return [name for name in mine if mine[name] != theirs[name] and name != 'seed']",
        "test_foreign.py::not_asked_for",
    ),
    Mutant(
        "any word will do for a choice",
        "files",
        "fits = any(type(value) is type(part) and value == part for part in parts)",
        "fits = isinstance(value, str)",
        "test_settings.py::misspelt",
    ),
    Mutant(
        "a checkpoint may be of other runs",
        "lab",
        'check_tie({**work.tie, "runs": list(span)}, tie, what)',
        "check_tie(work.tie, tie, what)",
        "test_ties.py::swapped",
    ),
    Mutant(
        "the hash of the settings leaves the domain out",
        "lab",
        'values["domain"] = _chosen(experiment.domain, but=experiment.name)',
        'values["domain"] = {}',
        "test_ties.py::hash_is_of",
    ),
    Mutant(
        "a folder's record of a file is not looked at",
        "lab",
        '    if not same:\n        raise UserError(f"{name} has changed',
        '    if False:\n        raise UserError(f"{name} has changed',
        "test_sources.py::differs_from_the_record",
    ),
    Mutant(
        "another experiment's damaged checkpoint is deleted",
        "files",
        "            if self.is_owned:  # nothing",
        "            if True:  # nothing",
        "test_sources.py::copied",
    ),
    Mutant(
        "as many runs as fit, and one more",
        "lab",
        "    if need > free:\n        instead",
        "    if need > free + episodes * BYTES_PER_ROW:\n        instead",
        "test_measure.py::rows_that_fit",
    ),
    Mutant(
        "a chunk keeps the rows that it has told",
        "lab",
        "self.rows = {name: column[~wanted] for name, column in rows.items()}",
        "self.rows = rows",
        "test_day.py::pile_up",
    ),
    Mutant(
        "a checkpoint is used whose rows are lost",
        "lab",
        "if self.log.has(first, told_in(saved, last - first)):",
        "if self.log.has(first, 0 * told_in(saved, last - first)):",
        "test_day.py::lost_rows",
    ),
    Mutant(
        "a table is read whatever its checksum",
        "files",
        'return _digest(file) in manifest["table"]',
        "return bool(_digest(file))",
        "test_day.py::lost_rows",
    ),
    Mutant(
        "episodes are timed as if each lasted one step",
        "lab",
        "if known else float(horizon)",
        "if known else 1.0",
        "test_measure.py::pace",
    ),
    Mutant(
        "rows need no disk",
        "lab",
        "need = runs * episodes * BYTES_PER_ROW\n    if need > free",
        "need = episodes * BYTES_PER_ROW\n    if need > free",
        "test_measure.py::disk or test_rows",
    ),
    # --- rejuvenation, tables and rewards ---
    Mutant(
        "relabelling forgets the prior",
        "posteriors",
        "        log_ratio = self.log_score(other) - self.log_score(state.theta)\n",
        "        log_ratio = jnp.zeros(())\n",
        "test_gibbs.py::relabelling_alone",
    ),
    Mutant(
        "states are filtered, and not drawn backwards",
        "posteriors",
        "        s_next = jnp.where(free, draw(u[0], after), s)\n",
        "        s_next = draw(u[0], after)\n",
        "test_gibbs.py::test_a_sweep_leaves",
    ),
    Mutant(
        "an episode goes on in the next",
        "posteriors",
        "        before = jnp.where(step.first, start, before)\n        joint",
        "        joint",
        "test_gibbs.py::test_a_sweep_leaves",
    ),
    Mutant(
        "an edge toggles without its prior",
        "posteriors",
        "        return log_prior + self.posterior.log_score(",
        "        return self.posterior.log_score(",
        "test_gibbs_factored.py::test_a_sweep_leaves and uncertain",
    ),
    Mutant(
        "moves or not, first states are drawn one by one",
        "core",
        'p0 = getattr(self.rejuvenation, "p0", None)',
        "p0 = None",
        "test_gibbs.py::evenly",
    ),
    Mutant(
        "even draws do not look at weights",
        "prng",
        ".at[jnp.argsort(-weights)].set(",
        ".at[jnp.arange(n)].set(",
        "test_prng.py::spread",
    ),
    Mutant(
        "tables forget nothing at a new episode",
        "posteriors",
        "        return TableTheta(b, s[:, np.array(self.posterior.form.features)])",
        "        return TableTheta(thetas.b, s[:, np.array(self.posterior.form.features)])",
        "test_rao_blackwell.py::brute_force and road",
    ),
    Mutant(
        "a reward that is not explained is no evidence",
        "core",
        "log_likelihood=jnp.where(explains, found.log_likelihood, -jnp.inf),",
        "log_likelihood=found.log_likelihood,",
        "test_outcome.py::tells_which",
    ),
    Mutant(
        "ancestors are not followed",
        "life",
        "roots = memory.roots[info.ancestors]",
        "roots = memory.roots",
        "test_ancestors.py::tags",
    ),
    Mutant(
        "particles without weight are ancestors",
        "life",
        "num_distinct(jnp.where(jnp.isneginf(belief.log_weights), n, roots), n)",
        "num_distinct(jnp.where(jnp.isneginf(belief.log_weights), roots, roots), n)",
        "test_ancestors.py::without_weight",
    ),
    Mutant(
        "the spread of z is that between particles",
        "posteriors",
        "jnp.sum(w * (own + (theta.mean - mean[None]) ** 2), axis=0)",
        "jnp.sum(w * (theta.mean - mean[None]) ** 2, axis=0)",
        "test_latent.py::spread_of_z",
    ),
    Mutant(
        "what was seen counts as imagined",
        "lab",
        "certain = never & (_last",
        "certain = (never | True) & (_last",
        "test_certainty.py::without_sight",
    ),
    Mutant(
        "certainty is judged after the first episode",
        "lab",
        "return table[np.arange(len(table)), np.maximum(number, 1) - 1]",
        "return table[:, 0]",
        "test_certainty.py::without_sight",
    ),
    Mutant(
        "a simulator is accepted by the root of the ratio",
        "posteriors",
        "accepted = jnp.log(u) < log_q - log_p",
        "accepted = jnp.log(u) < 0.5 * (log_q - log_p)",
        "test_pool.py::posterior_over_the_pool or stationary",
    ),
    Mutant(
        "a chain forgets the likelihood of what it accepted",
        "posteriors",
        "jnp.where(accepted, log_q, log_p)), None",
        "log_p), None",
        "test_pool.py::posterior_over_the_pool or stationary",
    ),
    Mutant(
        "the history is one episode",
        "posteriors",
        "before = jnp.where(first, start, table)",
        "before = table",
        "test_pool.py::likelihood_of_the_history",
    ),
    Mutant(
        "sums are left to a library",
        "fast",
        "passes | known_to_xla() |",
        "passes |",
        "test_loops.py::business",
    ),
    Mutant(
        "copies of a member count twice",
        "posteriors",
        "return 1 / jnp.sum(weights * distinct_weights(theta.who[0], weights)), weights.shape[0]",
        "return 1 / jnp.sum(weights**2), weights.shape[0]",
        "test_pool.py::copies",
    ),
]


# --- how they are run -----------------------------------------------------------------------------------


def home(mutant: Mutant, root: Path) -> Path | None:
    """The one file of the room that holds the old line, once."""
    room = root / "src" / "baddr" / mutant.room
    files = sorted(room.rglob("*.py")) if room.is_dir() else [room.with_suffix(".py")]
    found = [path for path in files if path.is_file() and mutant.old in path.read_text()]
    return found[0] if len(found) == 1 and found[0].read_text().count(mutant.old) == 1 else None


def selection(tests: str, root: Path) -> list[list[str]]:
    """pytest's arguments for `FILE::EXPRESSION; FILE`, wherever below tests/ the files lie."""
    chosen = []
    for part in tests.split(";"):
        name, _, expression = part.strip().partition("::")
        paths = [path for path in (root / "tests").rglob(name)]
        chosen += [[str(path), *(["-k", expression] if expression else [])] for path in paths]
    return chosen


def run_tests(mutant: Mutant, root: Path, cache: Path) -> int:
    """The first exit code of pytest that is not 0."""
    for made in ("priors", "solutions"):  # by another bug's program
        shutil.rmtree(cache / made, ignore_errors=True)
    path = os.pathsep.join([str(root / "src"), str(root / "tests")])
    environment = os.environ | {"PYTHONPATH": path, "BADDR_CACHE": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    chosen = selection(mutant.tests, root)
    for arguments in chosen:
        command = [sys.executable, "-m", "pytest", "-x", "--slow", "-p", "no:cacheprovider", *arguments]
        try:
            done = subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return FAILED
        if done.returncode != PASSED:
            return done.returncode
    return PASSED if chosen else BROKEN


def verdict(mutant: Mutant, root: Path, cache: Path) -> str:
    """What becomes of the bug in this copy of the tree, which is then as it was."""
    if mutant.equivalent:
        return "equivalent"
    path = home(mutant, root)
    if path is None:
        return "does not apply"
    text = path.read_text()
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        code = run_tests(mutant, root, cache)
    finally:
        path.write_text(text)
    return {PASSED: "SURVIVED", FAILED: "caught"}.get(code, "tests do not run")


def copy_of_the_tree(to: Path) -> Path:
    """The files that git knows or would know."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="NAME", help="bugs whose name contains this")
    parser.add_argument("--room", default="", metavar="ROOM", help="bugs of this room of src/baddr")
    parser.add_argument("-j", "--jobs", type=int, default=2, metavar="N", help="bugs at a time")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests without a bug first")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if options.only in m.name and m.room.startswith(options.room)]
    with tempfile.TemporaryDirectory() as folder:
        places: queue.SimpleQueue[tuple[Path, Path]] = queue.SimpleQueue()
        for i in range(options.jobs):
            places.put((copy_of_the_tree(Path(folder) / f"tree-{i}"), Path(folder) / f"cache-{i}"))

        def at_some_place(mutant: Mutant, judge) -> str:
            place, start = places.get(), time.monotonic()
            try:
                found = judge(mutant, *place)
            finally:
                places.put(place)
            print(f"{found:16} {time.monotonic() - start:5.0f} s  {mutant.room}: {mutant.name}", flush=True)
            return found

        def sound(mutant: Mutant, root: Path, cache: Path) -> str:
            return "passes" if run_tests(mutant, root, cache) == PASSED else "FAILS WITHOUT"

        with ThreadPoolExecutor(options.jobs) as pool:
            if not options.unchecked:  # tests that fail anyway would catch everything
                once = {m.tests: m for m in chosen if not m.equivalent}.values()
                if set(pool.map(lambda m: at_some_place(m, sound), once)) - {"passes"}:
                    return 2
            found = list(pool.map(lambda m: at_some_place(m, verdict), chosen))
    counts = {word: found.count(word) for word in dict.fromkeys(found)}
    print(", ".join(f"{n} {word}" for word, n in counts.items()))
    return 0 if set(counts) <= {"caught", "equivalent"} else 1


if __name__ == "__main__":
    sys.exit(main())
