from schemas.io.progress import progress_line


def test_a_line_says_what_is_done_how_fast_and_how_long_the_rest_takes():
    line = progress_line("extract", 1200, 5000, "rows", 300.4, 12.6)
    assert line == "extract: 1,200 of 5,000 rows, 300 rows/s, 13 s left"


def test_a_slow_rate_is_not_told_as_none():
    assert "0.042 boosters/s" in progress_line("lightgbm", 1, 40, "boosters", 0.0421, 900)


def test_a_step_that_has_done_nothing_yet_knows_no_time_left():
    assert progress_line("report", 0, 5, "tasks", 0.0, None).endswith("0 tasks/s, ? s left")
