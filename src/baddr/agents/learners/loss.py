"""What a learner descends: the loss of a sample, and the optimizer."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from baddr.agents.learners.settings import DPFRL
from baddr.core.pomdp import Scalar


def n_step_targets(
    r: Float[Array, "n B"], ended: Bool[Array, "n B"], bootstrap: Float[Array, " B"], discount: float
) -> Float[Array, "n B"]:
    """R_i = r_i + gamma R_{i+1}, where R_n is the bootstrap and nothing follows an episode's end."""

    def back(R: Float[Array, " B"], step: tuple[Array, Array]) -> tuple[Array, Array]:
        r, ended = step
        R = r + discount * jnp.where(ended, 0.0, R)
        return R, R

    return jax.lax.scan(back, bootstrap, (r, ended), reverse=True)[1]


def a2c_loss(
    logits: Float[Array, "n B A"],
    value: Float[Array, "n B"],
    a: Int[Array, "n B"],
    R: Float[Array, "n B"],
    settings: DPFRL,
) -> Scalar:
    """Means over steps and actors of (R - V)^2, -(R - V) log pi (R - V held fixed) and -entropy, weighted."""
    log_pi = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_pi, a[..., None], axis=-1)[..., 0]
    entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)
    advantage = R - value
    return (
        settings.critic_coefficient * jnp.mean(advantage**2)
        - settings.actor_coefficient * jnp.mean(jax.lax.stop_gradient(advantage) * chosen)
        - settings.entropy_coefficient * jnp.mean(entropy)
    )


def optimizer(settings: DPFRL) -> optax.GradientTransformation:
    """Gradients are clipped by their norm over all weights, then RMSProp: g / (sqrt(v) + eps), v the running
    mean of g^2. As in the published program, eps is outside of the root and v is not corrected for its start.

    The published program divides by the norm plus 1e-6, optax by the norm: where gradients are clipped to 5,
    they differ in the seventh digit.
    """
    return optax.chain(
        optax.clip_by_global_norm(settings.max_gradient_norm),
        optax.scale_by_rms(settings.decay, settings.epsilon, eps_in_sqrt=False),
    )


def descend(w: PyTree, state: PyTree, gradient: PyTree, lr: Scalar, settings: DPFRL) -> tuple[PyTree, PyTree]:
    """The weights after a step of the optimizer, and its state."""
    step, state = optimizer(settings).update(gradient, state)
    return jax.tree.map(lambda w, x: w - lr * x, w, step), state
