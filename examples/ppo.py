"""PPO and RecurrentPPO of Stable-Baselines3 as rows of the suite. Needs the extra `sb3`.

python examples/ppo.py tiger t-maze --agent recurrent-ppo --out ppo.parquet
baddr suite --add ppo.parquet --name recurrent-ppo --out results/suite
"""

import argparse
from pathlib import Path

import gymnasium
import numpy as np

from baddr.domains.catalog import entry
from baddr.files.tables import write_table
from baddr.gym import environment_id


class Returns(gymnasium.Wrapper):
    """Keeps the discounted return of every episode that ends."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.found: list[float] = []

    def reset(self, **given):
        observation, info = self.env.reset(**given)
        self.so_far, self.weight, self.discount = 0.0, 1.0, info["discount"]
        return observation, info

    def step(self, action):
        *seen, reward, terminated, truncated, info = self.env.step(action)
        self.so_far, self.weight = self.so_far + self.weight * reward, self.weight * self.discount
        if terminated or truncated:
            self.found.append(self.so_far)
        return *seen, reward, terminated, truncated, info


def learn(agent: str, domain: str, seed: int, episodes: int) -> list[float]:
    """The returns of so many episodes, while it learns. A memory is what sees more than the last step."""
    from sb3_contrib import RecurrentPPO
    from stable_baselines3 import PPO

    truth = entry(domain).suite  # the settings that the suite chooses for the domain
    env = Returns(gymnasium.make(f"baddr.gym:{environment_id(domain)}", **truth))
    discount = env.reset(seed=seed)[1]["discount"]
    kind, policy = (PPO, "MlpPolicy") if agent == "ppo" else (RecurrentPPO, "MlpLstmPolicy")
    model = kind(policy, env, gamma=discount, n_steps=256, batch_size=64, seed=seed, device="cpu")
    enough = lambda *_: len(env.found) < episodes  # a callback that says whether to go on
    model.learn(10**12, callback=enough)
    return env.found[:episodes]


def main() -> None:
    parser = argparse.ArgumentParser(description="Stable-Baselines3 on domains of `baddr suite`.")
    parser.add_argument("domains", nargs="+")
    parser.add_argument("--agent", choices=("ppo", "recurrent-ppo"), default="recurrent-ppo")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("ppo.parquet"))
    options = parser.parse_args()
    learned = lambda domain, run: learn(options.agent, domain, run, options.episodes)
    returns = np.array([[learned(domain, run) for run in range(options.runs)] for domain in options.domains])
    for domain, found in zip(options.domains, returns, strict=True):
        last = found[:, -max(1, options.episodes // 10) :]
        print(f"{options.agent} on {domain}: {last.mean():.3f} in the end")
    domain, run, episode = (x.ravel() for x in np.indices(returns.shape))
    rows = {"domain": np.array(options.domains, object)[domain], "run": run, "episode": episode}
    write_table(options.out, rows | {"discounted_return": returns.ravel()})


if __name__ == "__main__":
    main()
