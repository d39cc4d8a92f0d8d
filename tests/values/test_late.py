"""Names that are imported when somebody asks for them."""

import subprocess
import sys
from importlib import import_module

import pytest

from glidepath._lazy import lazy_attributes

PACKAGES = ("agent", "context", "plugins", "run", "spi")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_of_a_package_is_there_in_a_fresh_process(name):
    code = f"from glidepath.{name} import *; import glidepath.{name} as it; assert set(it.__all__) <= set(dir(it))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", PACKAGES)
def test_a_name_that_no_package_has_is_an_attribute_error_that_names_the_package(name):
    package = import_module(f"glidepath.{name}")
    with pytest.raises(AttributeError, match=f"module 'glidepath.{name}' has no attribute 'sideways'"):
        package.sideways  # noqa: B018 - looking is enough


def test_a_name_is_kept_where_it_was_asked_for():
    package = import_module("glidepath.plugins")
    assert (
        lazy_attributes("glidepath.plugins", channel=("ChannelSteering",))("ChannelSteering")
        is vars(package)["ChannelSteering"]
    )
