"""A job is done when the body of its handler has run, whatever shape the handler has."""

from __future__ import annotations

import functools

import msgspec
import pytest

from howdah import ConfigError, Howdah
from howdah.events.consumer import Consumer, ConsumerOptions
from howdah.handler import Handler
from howdah.outcome import Outcome
from kit import lazy_handlers
from kit.process_executor import acks

pytestmark = pytest.mark.anyio


class Uploads(msgspec.Struct):
    id: int


class Generating:
    def __call__(self, file: str):
        yield file

    def generates(self, file: str):
        yield file


REFUSED = [
    lazy_handlers.yields,
    lazy_handlers.yields_later,
    Generating().generates,
    Generating(),
    functools.partial(lazy_handlers.yields, "x"),
    functools.partial(lazy_handlers.yields_later),
]


@pytest.mark.parametrize("executor", [None, "process"])
@pytest.mark.parametrize("function", REFUSED, ids=lambda each: getattr(each, "__qualname__", type(each).__name__))
def test_a_task_with_a_yield_in_it_is_refused(function, executor):
    with pytest.raises(ConfigError, match="yield"):
        Handler("t", function, executor=executor)


def test_a_task_that_is_no_function_is_refused_in_plain_words():
    for strange in (functools.partial(lazy_handlers.writes, "x"), object()):
        with pytest.raises(ConfigError, match="write a function"):
            Handler("t", strange)


@pytest.mark.parametrize("hook", ["execute", "before_execute", "after_execute", "before_claim"])
@pytest.mark.parametrize("later", [False, True], ids=["generator", "async generator"])
@pytest.mark.parametrize("instance", [False, True], ids=["class", "instance"])
def test_a_table_handler_with_a_yield_in_it_is_refused(hook, later, instance):
    def yields(self, record=None, outcome=None):
        yield

    async def yields_later(self, record=None, outcome=None):
        yield

    async def execute(self, record): ...

    target = type("Target", (), {"execute": execute, hook: yields_later if later else yields})
    with pytest.raises(ConfigError, match="yield"):
        Howdah().table("uploads", record=Uploads, order_by=["id"]).handler(target() if instance else target)


def test_a_table_handler_that_is_a_generator_function_is_refused():
    async def yields(record):
        yield

    with pytest.raises(ConfigError, match="yield"):
        Howdah().table("uploads", record=Uploads, order_by=["id"]).handler(yields)


@pytest.mark.parametrize("later", [False, True], ids=["generator", "async generator"])
def test_a_consumer_with_a_yield_in_it_is_refused(later):
    def yields(event):
        yield

    async def yields_later(event):
        yield

    with pytest.raises(ConfigError, match="must be a coroutine function"):
        Consumer("c", yields_later if later else yields, ConsumerOptions())


RUN = [
    ("thread", lazy_handlers.returns_coroutine),
    ("process", lazy_handlers.returns_coroutine),
    ("async", lazy_handlers.forgets_to_await),
    ("process", lazy_handlers.forgets_to_await),
]


@pytest.mark.parametrize(("executor", "function"), RUN, ids=lambda each: getattr(each, "__name__", each))
async def test_a_coroutine_that_a_handler_returns_is_awaited(tmp_path, executor, function):
    (ack,) = await acks(executor, function, file=str(tmp_path / "ran"))
    assert (ack.outcome, ack.error, ack.result) == (Outcome.OK, None, b'"written"')
    assert (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("function", [lazy_handlers.returns_coroutine, lazy_handlers.yields])
async def test_control_without_the_look_at_what_is_returned_a_job_is_done_and_did_not_run(
    tmp_path, monkeypatch, function
):
    async def as_it_is(value: object) -> object:
        return value

    monkeypatch.setattr("howdah.handler.check_body", lambda *_: None)
    monkeypatch.setattr("howdah.worker.attempt.finished", as_it_is)
    monkeypatch.setattr("howdah.worker.attempt.is_unfinished", lambda _: False)
    (ack,) = await acks("thread", function, file=str(tmp_path / "ran"))
    assert ack.outcome is Outcome.OK
    assert not (tmp_path / "ran").exists()


async def test_a_coroutine_function_behind_a_plain_decorator_runs(tmp_path):
    (ack,) = await acks(None, lazy_handlers.wrapped(lazy_handlers.writes), file=str(tmp_path / "ran"))
    assert (ack.outcome, ack.result) == (Outcome.OK, b'"written"')
    assert (tmp_path / "ran").exists()


FAIL = [
    ("thread", lazy_handlers.returns_generator),
    ("thread", lazy_handlers.returns_async_generator),
    ("process", lazy_handlers.returns_generator),
    ("process", lazy_handlers.returns_async_generator),
    ("async", lazy_handlers.returns_coroutine_of_generator),
    ("process", lazy_handlers.returns_coroutine_of_generator),
    (None, lazy_handlers.wrapped(lazy_handlers.yields)),
    (None, lazy_handlers.wrapped(lazy_handlers.yields_later)),
]


@pytest.mark.parametrize(("executor", "function"), FAIL, ids=lambda each: getattr(each, "__name__", each))
async def test_a_generator_that_a_handler_returns_is_a_failure(tmp_path, executor, function):
    (ack,) = await acks(executor, function, file=str(tmp_path / "ran"))
    assert (ack.outcome, ack.error) == (Outcome.FAILED, "TypeError")
    assert "generator" in ack.message
    assert not (tmp_path / "ran").exists(), "the check was blind: the body ran"


async def test_a_coroutine_that_a_consumer_returns_is_awaited(tmp_path):
    async def forgets(event):
        return lazy_handlers.writes(event)

    await Consumer("c", forgets, ConsumerOptions()).call(str(tmp_path / "ran"), None)
    assert (tmp_path / "ran").exists()


async def test_a_generator_that_a_consumer_returns_is_a_failure(tmp_path):
    async def returns(event):
        return lazy_handlers.yields(event)

    with pytest.raises(TypeError, match="generator"):
        await Consumer("c", returns, ConsumerOptions()).call(str(tmp_path / "ran"), None)
