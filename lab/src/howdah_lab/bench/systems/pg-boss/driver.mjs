// pg-boss with large batches and notifications; its handlers are given a batch, and end it as a whole.

import pg from "pg";
import { PgBoss } from "pg-boss";
import { setTimeout as sleep } from "node:timers/promises";
import { DSN, PAUSE, chunks, handlers, serve } from "./kit.mjs";

const LIST = 1000;
const KINDS = ["nothing", "pause", "insert", "transact", "probe"];
const INSERT = { name: "effect", text: "insert into bench_effect (job) values ($1)" };
const INSERT_ALL = "insert into bench_effect (job) select unnest($1::text[])";
let boss, pool;

const start = async (options) => {
  boss = new PgBoss({ connectionString: DSN, max: 10, useListenNotify: true, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
};

const settings = { batchSize: 1000, localConcurrency: 4, burstWhenBatchFull: true };

serve({
  packages: ["pg-boss", "pg"],
  setup: async () => {
    await start({});
    for (const kind of KINDS) await boss.createQueue(kind, { notify: true });
  },
  open: () => start({ supervise: false, schedule: false }),
  one: (kind, args) => boss.send(kind, args),
  bulk: async (kind, jobs) => {
    for (const part of chunks(jobs, LIST)) await boss.insert(kind, part.map((data) => ({ data })));
  },
  later: async (jobs, seconds) => {
    const startAfter = new Date(Date.now() + seconds * 1000);
    for (const part of chunks(jobs, LIST)) await boss.insert("probe", part.map((data) => ({ data, startAfter })));
  },
  work: async () => {
    await start({});
    pool = new pg.Pool({ connectionString: DSN, max: 10 });
    await boss.work("nothing", settings, async (jobs) => {
      for (const _ of jobs) handlers.start();
    });
    await boss.work("pause", settings, (jobs) =>
      Promise.all(
        jobs.map(async () => {
          handlers.start();
          await sleep(PAUSE);
        }),
      ),
    );
    await boss.work("insert", settings, (jobs) =>
      Promise.all(
        jobs.map(async (job) => {
          handlers.start();
          await pool.query({ ...INSERT, values: [job.id] });
        }),
      ),
    );
    await boss.work("transact", { ...settings, transactional: true }, async (jobs, db) => {
      for (const _ of jobs) handlers.start();
      await db.executeSql(INSERT_ALL, [jobs.map((job) => job.id)]);
    });
    await boss.work("probe", { ...settings, pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 }, async (jobs) => {
      for (const job of jobs) handlers.probe(job.data.began);
    });
  },
});
