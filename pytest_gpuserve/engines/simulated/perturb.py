"""`--gpuserve-perturb`: what to change on the simulated host, to see the gate work."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Literal, get_args

from msgspec import Struct, field

from ...errors import InputError, RequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

OPTION = "--gpuserve-perturb"
Action = Literal["opens", "otherwise", "crash", "hang"]
ACTIONS: tuple[Action, ...] = get_args(Action)
OPEN_SPEEDUP = 1.1
"""What a `slower` dead end that works is faster than its partner: more than any tolerance of the suites."""

_FORMS = (
    "slowdown=8%, slowdown:<config>=8%, opens:<config>, otherwise:<config>, crash:<config> or hang:<config>"
)
_SLOWDOWN = re.compile(r"slowdown(?::(?P<config>[^=]+))?=(?P<percent>[+-]?\d+(?:\.\d+)?)%")
_ACTION = re.compile(rf"(?P<action>{'|'.join(ACTIONS)}):(?P<config>[^=]+)")


class Change(Struct, frozen=True, kw_only=True):
    """What is different about one config."""

    slowdown: float = 0.0
    """Share by which its throughput falls: 0.08 for 8 %; negative is faster."""
    action: Action | None = None


class Perturbation(Struct, frozen=True, kw_only=True):
    """Every `--gpuserve-perturb` of a run."""

    slowdown: float = 0.0
    """Of every config that has none of its own."""
    slowdowns: dict[str, float] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)

    def of(self, config_id: str) -> Change:
        return Change(
            slowdown=self.slowdowns.get(config_id, self.slowdown), action=self.actions.get(config_id)
        )

    def texts(self) -> tuple[str, ...]:
        """As they are written on the command line."""
        general = [f"slowdown={self.slowdown:.2%}"] if self.slowdown else []
        single = [f"slowdown:{name}={share:.2%}" for name, share in self.slowdowns.items()]
        return (*general, *single, *(f"{action}:{name}" for name, action in self.actions.items()))

    def check(self, config_ids: Collection[str]) -> None:
        """Raise RequestError, with the near word, for a config that no suite of this run has."""
        for name in (*self.slowdowns, *self.actions):
            if name not in config_ids:
                near = difflib.get_close_matches(name, list(config_ids), 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise RequestError(f"{OPTION}: no suite of this run has a config {name!r}{hint}")


def parse(texts: Iterable[str]) -> Perturbation:
    """All perturbations of a run, from the option's values. Raises InputError that quotes the value."""
    general: float | None = None
    slowdowns: dict[str, float] = {}
    actions: dict[str, Action] = {}
    for text in texts:
        if found := _SLOWDOWN.fullmatch(text):
            share = float(found["percent"]) / 100
            if not -1 < share < 1:
                raise InputError(f"{OPTION} {text!r}: a slowdown lies between -100% and 100%")
            if found["config"] is None:
                if general is not None:
                    raise InputError(f"{OPTION} {text!r}: a general slowdown was given before")
                general = share
            elif found["config"] in slowdowns:
                raise InputError(f"{OPTION} {text!r}: {found['config']!r} has a slowdown already")
            else:
                slowdowns[found["config"]] = share
        elif found := _ACTION.fullmatch(text):
            config = found["config"]
            if config in actions:
                raise InputError(f"{OPTION} {text!r}: {config!r} already {actions[config]}")
            actions[config] = next(action for action in ACTIONS if action == found["action"])
        else:
            raise InputError(f"{OPTION} {text!r}: expected {_FORMS}")
    return Perturbation(slowdown=general or 0.0, slowdowns=slowdowns, actions=actions)
