"""Convert uploaded, compressed indexes of repositories into rows of `symbols`."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from howdah import Budget, Howdah, Outcome, Poison, Transaction, current_job

log = logging.getLogger("uploads")

app = Howdah()
SCHEMA = Path(__file__).with_name("schema.sql")
FOLDER = os.environ.get("UPLOADS_FOLDER", tempfile.gettempdir())
ROOM_NEEDED = 20_000_000


@dataclass(frozen=True)
class Upload:
    """The record that the handler receives: columns of the view, and one expression."""

    id: int
    repository_id: int
    repository_name: str
    commit: str
    file: str
    size: int
    waited: float


uploads = app.table(
    "uploads u",
    view="uploads_with_repository u",
    record=Upload,
    expressions={"waited": "extract(epoch from u.started_at - u.queued_at)"},
    order_by=["u.repository_id", "u.id"],
    max_attempts=3,
    retry_after=2,
    stalled_after=3,
    max_resets=2,
    reset_message="three workers went silent over this file",
    max_runtime=60,
    slots=4,
    transactional=True,
    budget=Budget(bytes=1_000_000, cost={"bytes": "size"}),
)


class Symbol(msgspec.Struct, array_like=True):
    """One line of an index: `["json/decoder.py", 20, "class", "JSONDecodeError"]`."""

    path: str
    line: int
    kind: str
    name: str


@uploads.handler
class Convert:
    """Unpacks an index and replaces the symbols of its repository in one transaction."""

    def before_claim(self) -> bool:
        """Claim nothing while the disk is full. The budget limits how much is unpacked at once."""
        return shutil.disk_usage(FOLDER).free > ROOM_NEEDED

    def before_execute(self, upload: Upload) -> None:
        file = Path(upload.file)
        if not file.exists():
            raise FileNotFoundError(f"{file.name} is not here yet")
        for left in file.parent.glob(f"{file.name}.unpacked-*"):  # left by an attempt that was killed
            left.unlink(missing_ok=True)

    async def execute(self, upload: Upload, tx: Transaction) -> None:
        log.info("upload %d: attempt %d at %s", upload.id, current_job().attempt, upload.repository_name)
        index = unpacked(upload)
        await gunzip(upload.file, index)
        # this row lock serialises uploads of the same repository
        await tx.execute(
            "update repositories set indexed_commit = $2 where id = $1", upload.repository_id, upload.commit
        )
        await tx.execute("delete from symbols where repository_id = $1", upload.repository_id)
        with uploads.log("load") as entry:
            symbols = await asyncio.to_thread(lambda: list(read(index)))
            rows = [(upload.repository_id, upload.id, *msgspec.structs.astuple(each)) for each in symbols]
            async with tx.use() as conn:
                await conn.copy_records_to_table("symbols", records=rows)
            entry.write(f"{len(rows)} symbols\n")

    def after_execute(self, upload: Upload, outcome: Outcome) -> None:
        unpacked(upload).unlink(missing_ok=True)
        log.info("upload %d: %s", upload.id, outcome)


def unpacked(upload: Upload) -> Path:
    """Return the file of this attempt. The token in its name separates it from an attempt that lost its lease."""
    return Path(f"{upload.file}.unpacked-{current_job().token}")


async def gunzip(source: str, target: Path) -> None:
    """Unpack a file; the output of gzip goes to the execution logs of the row."""
    command = ["gzip", "--decompress", "--stdout", source]
    with uploads.log("gunzip", command=command) as entry, target.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=PIPE)
        try:
            _, stderr = await process.communicate()
        finally:
            if process.returncode is None:  # cancelled, or timed out
                process.kill()
                await process.wait()
        entry.write(stderr)
        entry.exit_code = process.returncode
    if process.returncode:
        raise Poison(f"{Path(source).name} cannot be unpacked")


def read(index: Path) -> Iterator[Symbol]:
    """Yield the symbols of an index."""
    decoder = msgspec.json.Decoder(Symbol)
    with index.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise Poison(f"line {number} is no symbol: {error}") from error
