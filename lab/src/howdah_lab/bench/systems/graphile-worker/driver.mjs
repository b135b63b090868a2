// Graphile Worker with its local queue and batched completion.

import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker";
import pg from "pg";
import { setTimeout as sleep } from "node:timers/promises";
import { DSN, PAUSE, QUEUES, chunks, handlers, serve } from "./kit.mjs";

const LIST = 1000;
const quiet = new Logger(() => (level, message) => level === "error" && console.error(message));
let utils, pool;

const preset = {
  worker: {
    connectionString: DSN,
    concurrentJobs: 100,
    maxPoolSize: 10,
    pollInterval: 200,
    localQueue: { size: 2000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: quiet,
  },
};

const taskList = {
  nothing: () => handlers.start(),
  pause: async () => {
    handlers.start();
    await sleep(PAUSE);
  },
  insert: async (_, helpers) => {
    handlers.start();
    await pool.query({ name: "effect", text: "insert into bench_effect (job) values ($1)", values: [helpers.job.id] });
  },
  probe: ({ began }) => handlers.probe(began),
};

// Its named queues run one job at a time; what comes nearest to the queues of others are task identifiers.
for (let number = 0; number < QUEUES; number++) taskList[`q${number}`] = taskList.nothing;

serve({
  packages: ["graphile-worker", "pg"],
  setup: () => runMigrations({ preset }),
  open: async () => {
    utils = await makeWorkerUtils({ preset });
    await utils.withPgClient((client) => client.query("select 1"));
  },
  one: (kind, args) => utils.addJob(kind, args),
  bulk: async (kind, jobs) => {
    for (const part of chunks(jobs, LIST))
      await utils.addJobs(part.map((payload) => ({ identifier: kind, payload })));
  },
  shaped: async (kind, jobs) => {
    for (const part of chunks(jobs, LIST))
      await utils.addJobs(
        part.map(([payload, { queue, priority, key }]) => ({ identifier: queue ?? kind, payload, priority, jobKey: key })),
      );
  },
  later: async (jobs, seconds) => {
    const runAt = new Date(Date.now() + seconds * 1000);
    for (const part of chunks(jobs, LIST))
      await utils.addJobs(part.map((payload) => ({ identifier: "probe", payload, runAt })));
  },
  work: async () => {
    pool = new pg.Pool({ connectionString: DSN, max: 10 });
    await run({ preset, taskList, noHandleSignals: true });
  },
});
