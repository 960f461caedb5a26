"""One run: what there is here, what is known of each case, and how it ends. Knows nothing of pytest.

`plugin` and `collect` turn plans into marks and errors into outcomes.
"""

from .ending import Result
from .options import Options
from .plan import Plan
from .run import Session

__all__ = ["Options", "Plan", "Result", "Session"]
