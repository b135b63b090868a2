"""The role that may only enqueue: calls of one moment travel together, and are told the truth about all of them."""

from __future__ import annotations

import asyncio

import pytest

from howdah import DatabaseFull, Howdah

pytestmark = pytest.mark.anyio

NO_ROOM = """
create function no_room() returns trigger language plpgsql as $$
begin
    if new.args ->> 'n' = '3' then
        raise exception using errcode = 'disk_full', message = 'No space left on device';
    end if;
    return new;
end $$;
create trigger no_room before insert on howdah.job for each row execute function no_room()
"""


async def test_when_one_finds_no_room_none_of_those_that_travel_with_it_is_enqueued(roles, conn):
    app = Howdah(roles("howdah_enqueue"))

    @app.task
    async def note(n: int) -> None: ...

    await conn.execute(NO_ROOM)
    results = await asyncio.gather(*(note.enqueue(n) for n in range(5)), return_exceptions=True)
    await app.close()

    assert [type(each) for each in results] == [DatabaseFull] * 5
    assert await conn.fetchval("select count(*) from howdah.job") == 0
