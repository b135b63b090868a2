"""Result: what a handler returned, as it is stored."""

from __future__ import annotations

from typing import Any

from howdah.arguments import encode
from howdah.scrub import LONGEST_MESSAGE, describe, keep, message_of


def result_of(value: Any, largest: int) -> tuple[bytes | None, str | None]:
    """What a handler returned as JSON; or nothing, and why it cannot be stored.

    Never raises, whatever the value's own code does: the work is done, and must not be done again for its result.

    >>> result_of([1], 100), result_of({"a": object()}, 100)
    ((b'[1]', None), (None, 'the result cannot be sent as JSON: a object has no JSON form'))
    """
    try:
        return encode(value, what="the result", largest=largest), None
    except BaseException as error:
        return None, keep(message_of(error) or describe(error)[0], LONGEST_MESSAGE)
