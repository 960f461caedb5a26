"""What this machine is, what it is called, what its site file says, and what it lacks for a config."""

from .probe import probe
from .profile import profile_name
from .site import EngineSite, SiteFile, load_site
from .unmet import unmet

__all__ = ["EngineSite", "SiteFile", "load_site", "probe", "profile_name", "unmet"]
