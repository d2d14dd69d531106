from schemas.io.progress import progress_line


def test_progress_line_has_progress_rate_and_time_left():
    line = progress_line("extract", 1200, 5000, "rows", 300.4, 12.6)
    assert line == "extract: 24 % of 5,000 rows · 300 rows/s · 13 s left"


def test_progress_line_shows_a_slow_rate():
    assert "0.042 boosters/s" in progress_line("lightgbm", 1, 40, "boosters", 0.0421, 900)


def test_progress_line_says_before_any_progress_that_the_time_is_unknown():
    assert progress_line("report", 0, 5, "tasks", 0.0, None).endswith("0 tasks/s · time left unknown")
