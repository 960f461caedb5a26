"""Every way a case can end badly, as exceptions. Bad input is an `InputError`; a bad end of a case is a `CaseError`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .record import Comparison, Failure, Verdict

if TYPE_CHECKING:
    from .model import Place


CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""For `str.translate`: what a log, a file or a program may hold and a terminal would obey, as visible text."""


class GpuserveError(Exception):
    """Base of all that this package raises on purpose; its text is meant for the user."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message.translate(CONTROLS))


class InputError(GpuserveError):
    """Something the user wrote is wrong. The text names file, line and key, and what would be right."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place


class SuiteError(InputError):
    """A suite file, or a registry of dead ends, that cannot be used."""


class RequestError(InputError):
    """What the command line asks for contradicts itself; nothing is run."""


class SiteError(InputError):
    """`gpuserve.local.yaml` cannot be used."""


class BaselineError(InputError):
    """A baseline file that cannot be read or must not be written."""


class EngineMissing(InputError):
    """The interpreter named for an engine does not exist or does not have the engine."""


class LeaseTimeout(GpuserveError):
    """GPUs or a port did not come free in time; the text says who holds them."""


class CaseError(GpuserveError):
    """A case ended badly. `verdict` says how; `failure` is the root error where a log tells one."""

    verdict: ClassVar[Verdict] = Verdict.ERROR

    def __init__(
        self, message: str, *, failure: Failure | None = None, comparisons: tuple[Comparison, ...] = ()
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.comparisons = comparisons


class StartFailed(CaseError):
    """The server did not become ready: it died, said something hopeless, or exceeded a phase's time limit."""

    verdict = Verdict.START_FAILED


class Crashed(CaseError):
    """The server died, or answered with errors, after it had become ready."""

    verdict = Verdict.CRASHED


class Stalled(CaseError):
    """The server lives and gives no token for longer than the workload's stall limit."""

    verdict = Verdict.STALLED


class StopFailed(CaseError):
    """The server, a descendant, its port or its GPU memory was still there after stopping it."""

    verdict = Verdict.STOP_FAILED


class Invalid(CaseError):
    """It ran, but the numbers must not be used."""

    verdict = Verdict.INVALID


class Inert(CaseError):
    """The flag was accepted, and the path it asks for stayed off."""

    verdict = Verdict.INERT


class Garbage(CaseError):
    """It answers nonsense."""

    verdict = Verdict.GARBAGE


class Regressed(CaseError):
    verdict = Verdict.REGRESSED


class SlowerThanPartner(CaseError):
    verdict = Verdict.SLOWER


class Improved(CaseError):
    """Faster than the baseline, under `gpuserve_improved = fail`."""

    verdict = Verdict.IMPROVED


class Inconclusive(CaseError):
    """The launches cannot tell, under `gpuserve_inconclusive = fail`."""

    verdict = Verdict.INCONCLUSIVE


class NoBaseline(CaseError):
    verdict = Verdict.NO_BASELINE


class NoPartner(CaseError):
    verdict = Verdict.NO_PARTNER


class NotComparable(CaseError):
    verdict = Verdict.NOT_COMPARABLE
