"""Goal: a pipeline's file means what it says; options win; what is wrong is told with what is right."""
from pathlib import Path

import pytest

from angarium.cli.failure import EXIT_USAGE, Failure
from angarium.cli.pipeline_settings import PipelineSettings
from angarium.core.errors import ConfigError

KINDS = {"destinations": list, "to": str, "count": int, "rate": float, "compact": bool}


def settings(tmp_path: Path, text: str, **given: object) -> PipelineSettings:
    path = tmp_path / "pipelines.toml"
    path.write_text(text)
    return PipelineSettings("archive", path, given, KINDS)


def test_options_win_over_the_file(tmp_path: Path) -> None:
    text = 'address = "angarium://a, angarium://b"\n[archive]\ndestinations = ["x"]\nto = "/t"\nrate = 2\n'
    text += '[spark]\nmaster = "local[1]"\n"spark.driver.memory" = "2g"\n[audit]\nanything = 1\n'
    found = settings(tmp_path, text, to="/other", destinations=[], count=None)
    assert found.required("to", "--to") == "/other" and found.required("destinations", "D") == ["x"]
    assert found.get("rate", 1.0) == 2 and found.get("count", 7) == 7
    assert found.addresses([]) == ("angarium://a", "angarium://b") and found.addresses(["c"]) == ("c",)
    assert found.master == "local[1]" and found.spark == {"spark.driver.memory": "2g"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[archive]\nfrom = 1\n", r"\[archive\]: unknown key 'from'; there are destinations, to"),
        ("[archive]\nto = 1\n", "to = 1: it is str"),
        ("[archive]\ncount = true\n", "count = True: it is int"),
        ('[archive]\ndestinations = "x"\n', "it is a list of texts"),
        ("[backup]\n", "unknown key 'backup'; there are address, archive"),
        ("address = 7\n", "address = 7: it is a text"),
        ("spark = 7\n", "spark is a table"),
        ("[archive]\ncount = -1\n", "count = -1: it is a number from 0"),
        ("[archive]\nrate = nan\n", "rate = nan: it is a number from 0"),
        ('[archive]\nto = ""\n', "to is empty"),
        ('[spark]\nmastre = "local[4]"\n', r"\[spark\]: unknown key 'mastre'; there are master"),
        ('[spark]\nspark.driver.memory = "4g"\n', 'names with dots are quoted, as "spark.driver.memory"'),
        ("[archive\n", "pipelines.toml: "),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        settings(tmp_path, text)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="--to is missing: give it, or 'to' in the file") as caught:
        settings(tmp_path, "").required("to", "--to")
    assert caught.value.exit_code == EXIT_USAGE


def test_a_rate_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="--rate is endless"):
        settings(tmp_path, "", rate=float("inf"))
