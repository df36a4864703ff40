"""Goal: what a user says with options is understood, or refused with what would be right."""
import pytest

from angarium.core.errors import ConfigError
from angarium.core.wire.frames import PatternSyntax
from angarium.spark.columns import ALL_COLUMNS, DEFAULT_COLUMNS
from angarium.spark.options import Where, parse_options


def test_names_of_options_have_no_case_and_lists_no_order() -> None:
    options = parse_options({"SUBSCRIBE": "b, a,b", "MAXoffsetsPerTrigger": "10", "failondataloss": "FALSE"})
    assert options.names == ("b", "a") and options.offsets_per_trigger_max == 10 and not options.fail_on_data_loss


def test_unknown_options_are_refused_and_the_valid_ones_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'topic'.*maxOffsetsPerTrigger.*subscribePattern"):
        parse_options({"subscribe": "a", "topic": "x"})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "exactly one of 'subscribe'"),
        ({"subscribe": "a", "subscribePattern": "a.*"}, "'subscribe' and 'subscribePattern' are given"),
        ({"subscribe": " , "}, "'subscribe' is empty"),
        ({"subscribe": "a b"}, "'subscribe'"),
        ({"subscribeRegex": "("}, "'subscribeRegex'"),
        ({"subscribe": "a", "selector": "n >"}, "'selector'"),
        ({"subscribe": "a", "minPartitions": "0"}, "no whole number from 1"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "ten"}, "'ten' is no whole number"),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "neither 'true' nor 'false'"),
        ({"subscribe": "a", "columns": "position,colour"}, "'colour' is unknown; there are destination"),
        ({"subscribe": "a", "columns": ""}, "it is empty"),
        ({"subscribe": "a", "startingOffsets": "soon"}, "is not 'earliest', 'latest', or JSON"),
        ({"subscribe": "a", "startingOffsets": "[1]"}, "no JSON object"),
        ({"subscribe": "a", "startingOffsets": '{"a": -3}'}, "use a position"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"10": 1}}'}, "use a position"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"²": 1}}'}, "use a position"),
        ({"subscribe": "a", "startingOffsets": f'{{"a": {10 << 56}}}'}, "use a position"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"identity": -1}}'}, "use a position"),
        ({"subscribe": "a", "startingOffsets": '{"a": true}'}, "use a position"),
        ({"subscribe": "a", "startingOffsets": "latest", "startingTimestamp": "1"}, "give one of them"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "nothing ends at 'earliest'"),
        ({"subscribe": "a", "startingTimestamp": "yesterday"}, "no whole number"),
        ({"subscribe": "a", "endingOffsetsByTimestamp": '{"a": "x"}'}, "no whole number"),
        ({"subscribe": "a", "startingTimestamp": "9", "endingTimestamp": "8"}, "8 ms, lies before .* 9 ms"),
        ({"subscribe": "a", "startingTimestamp": "9", "endingOffsetsByTimestamp": '{"a": 8}'}, "time of 'a', 8 ms"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": 9}', "endingTimestamp": "8"}, "time of 'a', 8 ms"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_options(given)


def test_places() -> None:
    def starting(**given: str) -> Where | None:
        return parse_options({"subscribe": "a", **given}).starting

    assert starting() is None
    assert starting(startingOffsets="Earliest") == Where(everywhere="earliest")
    assert starting(startingTimestamp="17") == Where(timestamp_ms=17)
    assert starting(startingOffsetsByTimestamp='{"a": 5}') == Where(timestamps_ms={"a": 5})
    assert starting(startingOffsets='{"a": {"identity": 3, "4": 7}}') == Where(positions={"a": {"identity": 3, "4": 7}})


def test_streams_have_no_end_and_batches_no_rate() -> None:
    given = {"subscribe": "a", "endingoffsets": "latest"}
    with pytest.raises(ConfigError, match="a stream has no end"):
        parse_options(given).refuse_of_stream(given)
    given = {"subscribe": "a", "maxoffsetspertrigger": "5"}
    with pytest.raises(ConfigError, match=r"spark\.readStream"):
        parse_options(given).refuse_of_batch(given)


def test_patterns_and_columns() -> None:
    options = parse_options({"subscribeRegex": "a.+", "includeHeaders": "true"})
    assert options.pattern_syntax is PatternSyntax.REGEX and options.columns == (*DEFAULT_COLUMNS, "headers")
    everything = parse_options({"subscribe": "a", "columns": ", ".join(ALL_COLUMNS)})
    assert everything.columns == ALL_COLUMNS
    assert parse_options({"subscribePattern": "a.*"}).columns == DEFAULT_COLUMNS
    assert parse_options({"subscribe": "a", "columns": "body, position"}).columns == ("body", "position")
