from schemas.io.progress import metrics_line, progress_line


def test_progress_line_has_progress_rate_and_time_left():
    line = progress_line("extract", 1200, 5000, "rows", 300.4, 12.6)
    assert line == "extract: 24 % of 5,000 rows · 300 rows/s · 13 s left"


def test_progress_line_shows_a_slow_rate():
    assert "0.042 boosters/s" in progress_line("lightgbm", 1, 40, "boosters", 0.0421, 900)


def test_progress_line_says_before_any_progress_that_the_time_is_unknown():
    assert progress_line("report", 0, 5, "tasks", 0.0, None).endswith("0 tasks/s · time left unknown")


def test_metrics_line_has_counts_in_full_and_says_that_there_is_no_number():
    metrics = {"auroc": 0.81234, "rows": 12540, "tokens_per_second": 14321.7, "users": "< 11"}
    assert metrics_line("result", metrics) == "result: auroc 0.8123 · rows 12,540 · tokens_per_second 14,322"
    assert metrics_line("result", {"users": "< 11", "auroc": None}) == "result: no number to show"
