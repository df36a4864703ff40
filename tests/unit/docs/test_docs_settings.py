"""Goal: the reference of settings says what the code says, of every setting."""
import dataclasses

from angarium.node.config import NodeConfig
from tests.unit.docs import settings_reference


def test_the_reference_of_settings_is_that_of_the_code() -> None:
    told = "docs/reference/settings.md is out of date: python -m tests.unit.docs.settings_reference"
    assert settings_reference.PAGE.read_text(encoding="utf-8") == settings_reference.page(), told


def test_every_setting_has_a_meaning() -> None:
    for section in dataclasses.fields(NodeConfig):
        assert isinstance(section.default_factory, type)
        named = [field.name for field in dataclasses.fields(section.default_factory)]
        assert list(settings_reference.meanings_of(section.default_factory)) == named
