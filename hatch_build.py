"""A build hook: an editable install brings the `.pth` of a checkout, which a wheel does not. See docs/install.md."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = "assets/environment"


class EnvironmentOfACheckout(BuildHookInterface[Any]):
    """Adds to what pip installs of a checkout that stays where it is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say before the build what goes beside the packages: of an editable build the `.pth` and what it imports."""
        if version == "editable":
            names = ("nest_environment.pth", "nest_environment.py")
            build_data["force_include_editable"] = {f"{HERE}/{name}": name for name in names}
