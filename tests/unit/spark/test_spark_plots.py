"""Goal: pages need nothing else, show what they are given, and nobody's name becomes markup."""
import xml.etree.ElementTree as xml

import pytest

from angarium.spark.pipelines.plots import Line, bar_plot, ceiling, figure, line_plot, page, table


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.3, 0.5), (1, 1), (7, 10), (120, 200), (5_001, 10_000)])
def test_axes_end_at_a_round_figure(value: float, top: float) -> None:
    assert ceiling(value) == pytest.approx(top)


def test_figures_are_short() -> None:
    shown = [figure(value) for value in (None, 3, 3.14159, 0.0123, 1_234_567.8)]
    assert shown == ["–", "3", "3.1", "0.012", "1,234,568"]


def test_plots_are_well_formed_and_escaped() -> None:
    lines = [Line("<b>", [(0.0, 1.0), (1_000.0, None), (2_000.0, 3.0)]), Line("empty", [])]
    for drawn in (line_plot("a & b", lines, "ms"), bar_plot("<bars>", [("<x>", 3.0), ("y", 0.0)])):
        svg = drawn[drawn.index("<svg") :]
        xml.fromstring(svg)
        assert "<b>" not in drawn and "<bars>" not in drawn and "<x>" not in drawn


def test_nothing_is_drawn_of_nothing() -> None:
    assert line_plot("none", [Line("a", [])]) == "" and bar_plot("none", []) == ""


def test_pages_reach_out_for_nothing() -> None:
    text = page("<t>", [table(["", "n"], [["<i>", 7], ["j", None]]), line_plot("p", [Line("a", [(0.0, 0.0)])])])
    assert "<t>" not in text and "<i>" not in text and "&lt;i&gt;" in text
    assert not any(word in text for word in ("http", "<script", "<link", "@import", "url("))
