"""Random sleeps inside the functions and statements of the engine, so that operations meet in the middle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

SLEEP = "explore.sleep"
"""The setting of a session that turns the sleeps on."""
MAKE = f"""
create function public.explore_sleep(chance float8) returns boolean language plpgsql as $$
begin
    if pg_catalog.current_setting('{SLEEP}', true) = 'on' and pg_catalog.random() < chance then
        perform pg_catalog.pg_sleep(pg_catalog.random() * pg_catalog.random() * 0.02);
    end if;
    return true;
end $$;
create function public.explore_row() returns trigger language plpgsql as $$
begin
    perform public.explore_sleep(0.15);
    if tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end $$;
create function public.explore_statement() returns trigger language plpgsql as $$
begin
    perform public.explore_sleep(0.3);
    return null;
end $$;
"""
FUNCTIONS = """
select pg_get_functiondef(p.oid) as text from pg_proc p join pg_language l on l.oid = p.prolang
where p.pronamespace = 'howdah'::regnamespace and l.lanname = 'plpgsql' and p.prorettype <> 'trigger'::regtype
  and p.proname <> 'notify_workers'
"""
TRIGGERS = """
create trigger explore_row before insert or update or delete on {table}
    for each row execute function public.explore_row();
create trigger explore_statement before insert or update or delete on {table}
    for each statement execute function public.explore_statement();
"""
ENDS_ELSEWHERE = re.compile(r"\s*(return\b.*|continue\b.*|exit\b.*|raise;|raise exception.*|end\b.*)", re.DOTALL)


async def add_sleeps(conn: Any, tables: Sequence[str]) -> None:
    """Put sleeps between the statements of every function, before every statement that writes, and at single rows.

    A trigger for each statement runs when its snapshot is taken and before it looks for rows.
    """
    await conn.execute(MAKE)
    for table in tables:
        await conn.execute(TRIGGERS.format(table=table))
    for row in await conn.fetch(FUNCTIONS):
        await conn.execute(slowed(row["text"]))


def slowed(function: str) -> str:
    """The text of a function in PL/pgSQL with a sleep after each of its statements."""
    lines: list[str] = []
    body = False
    for line in function.split("\n"):
        lines.append(line)
        code = re.sub(r"--.*", "", line).rstrip()
        if line.strip() == "begin":
            body = True
        elif body and code.endswith(";") and not ENDS_ELSEWHERE.fullmatch(code):
            lines.append("if public.explore_sleep(0.4) then end if;")  # unlike PERFORM it leaves FOUND alone
    return "\n".join(lines)
