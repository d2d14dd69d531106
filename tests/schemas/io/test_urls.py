"""What an address may hold that is neither kept nor shown."""

import pytest

from schemas.io.urls import holds_secret, shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://nurse:hunter2@host:81/a", "https://host:81/a"),
        ("https://token@host/a", "https://host/a"),
        ("https://host/a?token=hunter2", "https://host/a"),
        ("https://host/a#hunter2", "https://host/a"),
        ("https://[hunter2/a", "https://…"),
    ],
)
def test_a_user_and_a_query_are_secret_and_the_rest_is_shown(url: str, shown: str) -> None:
    assert holds_secret(url)
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "value", ["s3://bucket/nest", "tcp://scheduler:8786", "a folder/with@sign?", "42", ""]
)
def test_what_holds_none_is_shown_as_it_is(value: str) -> None:
    assert not holds_secret(value)
    assert shown_url(value) == value
