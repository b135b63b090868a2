"""The handler of a table, a class or function with hooks, as a worker runs it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import typing
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from howdah import telemetry
from howdah.errors import ConfigError, Poison
from howdah.handler import Executor, Handler, check_body, finished, is_unfinished
from howdah.job import Job
from howdah.outcome import Ack
from howdah.retry import Retries
from howdah.store import Transaction
from howdah.table.record import Record
from howdah.table.statement import Where

log = logging.getLogger("howdah")

HOOKS = ("before_claim", "before_execute", "after_execute")
LONGEST_ASK = 30.0
"""Timeout of a call of ``before_claim``, in seconds."""


class TableHandler(Handler):
    """The handler of a table: ``execute``, and the hooks around it."""

    def __init__(  # The arguments of a row are its record, so the base class's own setup does not apply.
        self,
        kind: str,
        target: Any,
        record: Record,
        *,
        executor: Executor | None = None,
        transactional: bool = False,
        retries: Retries,
    ) -> None:
        self.kind = kind
        self.function = target
        self.record = record
        self.retries = retries
        self.transactional = transactional
        self.over: list[Callable[[Job, Ack], Awaitable[None]]] = []
        """Called when an attempt has finished, after the user's own hook."""
        self.begun: list[Callable[[Job], None]] = []
        """Called when ``before_execute`` of a row has run, in the event loop."""
        self._home: asyncio.AbstractEventLoop | None = None
        self._asked: asyncio.Future[Any] | None = None
        is_class = inspect.isclass(target)
        plain = inspect.isfunction(target) or inspect.ismethod(target)
        if not plain and not callable(getattr(target, "execute", None)):
            raise ConfigError(f"the handler of table {kind} needs a method execute(record), {target!r} has none")
        self._made: Any = None if is_class else target
        execute = target if plain else target.execute
        for each in (execute, *(() if plain else (getattr(target, name, None) for name in HOOKS))):
            check_body(f"the handler of table {kind}", each)
        self._is_async = inspect.iscoroutinefunction(execute)
        self._has = {name: not plain and callable(getattr(target, name, None)) for name in HOOKS}
        self.executor = self._choose(executor)
        self._tx = self._parameters(execute, skip=is_class)

    # ---------------------------------------------------------------- called by the worker

    @property
    def has_after(self) -> bool:  # type: ignore[override]
        return self._has["after_execute"] or bool(self.over)

    @property
    def plain(self) -> bool:  # type: ignore[override]
        return self.executor == "async" and not self.transactional and not self.has_after

    def call(self, job: Job, extra: Mapping[str, Any] | None = None) -> Any:
        record = self.record.read(job)
        named = {self._tx: extra["tx"]} if extra and self._tx else {}
        if self._has["before_execute"]:
            if self._is_async:
                return self._prepared(job, record, named)
            self._wait_for(self._target.before_execute(record))
        self._begin(job)
        return self._execute(record, **named)

    async def after(self, job: Job, ack: Ack) -> None:
        try:
            if self._has["after_execute"]:
                await self._after_execute(job, ack)
        finally:
            for each in self.over:
                await each(job, ack)

    async def _after_execute(self, job: Job, ack: Ack) -> None:
        try:
            record = self.record.read(job)
        except (LookupError, Poison):
            return  # The attempt failed because the record could not be made; there is nothing to pass to the hook.
        await run_hook(self._target.after_execute, record, ack.outcome)

    # ---------------------------------------------------------------- called by the source

    @property
    def gated(self) -> bool:
        """True if it has a ``before_claim`` hook."""
        return self._has["before_claim"]

    @property
    def one_by_one(self) -> bool:
        """True if an answer of ``before_claim`` admits one row: other hooks keep account of what rows use."""
        counts = self._has["before_execute"] or self._has["after_execute"]
        return self.gated and counts and self.executor != "process"

    def _begin(self, job: Job) -> None:
        for tell in self.begun:
            if self._is_async or self._home is None:
                tell(job)
            else:
                self._home.call_soon_threadsafe(tell, job)

    def settle(self) -> None:
        """Remember the running event loop: coroutine hooks of thread handlers run in it."""
        self._home = asyncio.get_running_loop()

    async def may_claim(self) -> bool | Where:
        """Call the hook ``before_claim``; a hook that fails means no claim now."""
        if not self._has["before_claim"]:
            return True
        try:
            result = await self._ask()
            if not isinstance(result, bool | Where):
                raise TypeError(f"before_claim must return True, False or a Where, got {result!r}")
        except Exception as error:
            log.error("before_claim of table %s failed: %s", self.kind, error, exc_info=error)
            telemetry.emit("hook.fail", kind=self.kind, hook="before_claim", error=error)
            return False
        return result

    async def _ask(self) -> Any:
        """Call ``before_claim`` with a timeout; while a call has not ended, no other is made."""
        if self._asked is not None and not self._asked.done():
            raise TimeoutError(f"an earlier call has not ended for more than {LONGEST_ASK:g} s")
        hook = self._target.before_claim
        asked = asyncio.ensure_future(hook() if inspect.iscoroutinefunction(hook) else _in_daemon(hook))
        self._asked = asked
        try:
            done, _ = await asyncio.wait({asked}, timeout=LONGEST_ASK)
        except asyncio.CancelledError:
            asked.cancel()
            raise
        if done:
            self._asked = None
            result = asked.result()
            return await result if inspect.isawaitable(result) else result
        if inspect.iscoroutinefunction(hook):
            asked.cancel()
        raise TimeoutError(f"it has not ended for {LONGEST_ASK:g} s")

    # ---------------------------------------------------------------- inside

    @property
    def _target(self) -> Any:
        if self._made is None:
            self._made = self.function()
        return self._made

    @property
    def _execute(self) -> Callable[..., Any]:
        target = self._target
        return target if inspect.isfunction(target) or inspect.ismethod(target) else target.execute

    async def _prepared(self, job: Job, record: Any, named: Mapping[str, Any]) -> Any:
        await run_hook(self._target.before_execute, record)
        self._begin(job)
        return await self._execute(record, **named)

    def _wait_for(self, result: Any) -> None:
        """In a thread or process: wait for a coroutine hook to finish."""
        if is_unfinished(result):
            if self._home is None:
                asyncio.run(finished(result))
            else:
                asyncio.run_coroutine_threadsafe(finished(result), self._home).result()

    def _choose(self, executor: Executor | None) -> Executor:
        if executor == "async" and not self._is_async:
            raise ConfigError(f"the handler of table {self.kind} has executor='async' but is plain; write `async def`")
        if executor == "thread" and self._is_async:
            raise ConfigError(f"the handler of table {self.kind} has executor='thread' but is async; write `def`")
        if self.transactional and (not self._is_async or executor == "process"):
            raise ConfigError(
                f"table {self.kind} is transactional, so its execute must be `async def` without an executor"
            )
        if executor == "process" and not hasattr(self.function, "__qualname__"):
            raise ConfigError(f"the handler of table {self.kind} runs in processes; pass the class, not an instance")
        return executor or ("async" if self._is_async else "thread")

    def _parameters(self, execute: Callable[..., Any], *, skip: bool) -> str | None:
        """Return the parameter that receives the transaction; the record is always the first."""
        parameters = list(inspect.signature(execute).parameters.values())[1 if skip else 0 :]
        try:
            hints = typing.get_type_hints(execute)
        except NameError:
            hints = {}
        tx = next((each.name for each in parameters if hints.get(each.name) is Transaction or each.name == "tx"), None)
        needed = [each.name for each in parameters if each.name != tx and each.default is each.empty]
        if len(needed) != 1:
            raise ConfigError(f"execute of table {self.kind} must take a record, it takes {needed or 'nothing'}")
        if self.transactional and tx is None:
            raise ConfigError(f"table {self.kind} is transactional, so execute must take a parameter `tx: Transaction`")
        if not self.transactional and tx is not None:
            raise ConfigError(f"execute of table {self.kind} takes a Transaction; set transactional=True")
        return tx


async def run_hook(hook: Callable[..., Any], *args: Any) -> Any:
    """Call a user's hook; a plain function in a thread, because it may block."""
    if inspect.iscoroutinefunction(hook):
        return await finished(await hook(*args))
    value, error = await asyncio.to_thread(_caught, hook, *args)
    if error is not None:
        raise error
    return await finished(value)


def _caught(hook: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """Call a hook; convert StopIteration, which a future cannot carry: the waiting attempt would never end."""
    try:
        return hook(*args), None
    except BaseException as error:
        return None, error


async def _in_daemon(function: Callable[[], Any]) -> Any:
    """Call a plain function in a thread that does not keep the process from ending."""
    loop, context = asyncio.get_running_loop(), copy_context()
    future: asyncio.Future[Any] = loop.create_future()

    def deliver(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result((value, error))

    def call() -> None:
        try:
            found: tuple[Any, BaseException | None] = (context.run(function), None)
        except BaseException as error:
            found = (None, error)
        with suppress(RuntimeError):  # The loop is closed: the process is ending.
            loop.call_soon_threadsafe(deliver, *found)

    threading.Thread(target=call, name="howdah before_claim", daemon=True).start()
    value, error = await future
    if error is not None:
        raise error
    return value


async def _await(result: Awaitable[Any]) -> Any:
    return await result
