"""Goal: what `angarium` promises to have is there, and is imported only when it is used."""
import subprocess
import sys

import pytest

import angarium


def test_every_public_name_is_there() -> None:
    for name in angarium.__all__:
        assert getattr(angarium, name) is not None
        assert name in dir(angarium)
    promised = [name for names in angarium._HOMES.values() for name in names]
    assert sorted(promised) == sorted(angarium.__all__)


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = angarium.conect


def test_the_package_alone_imports_nothing_of_it() -> None:
    program = "import sys, angarium; print(sorted(name for name in sys.modules if name.startswith('angarium.')))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).stdout == b"[]\n"
