// What the drivers in JavaScript share; the same protocol, arguments and counting as kit.py.

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { readFileSync } from "node:fs";

export const DSN = process.env.BENCH_DSN;
export const QUEUES = 50;
export const PAUSE = 1; // milliseconds the handler of kind `pause` awaits

let started = 0;
let made = []; // arguments, before the clock starts
let delays = [];

const now = () => Number(process.hrtime.bigint()) / 1e9; // the monotonic clock, as Python's

export const handlers = {
  start() {
    started += 1;
  },
  probe(began) {
    delays.push(now() - began);
    started += 1;
  },
};

const make = (number) => ({
  user_id: 100000 + number,
  email: `user${number}@example.com`,
  template: "welcome",
  number: number % 17,
  tags: ["a", "b"],
});

const LARGE = 4000; // bytes of the arguments of way `large`
const PRIORITIES = 20;
const options = (number) => ({ queue: `q${number % QUEUES}`, priority: Math.floor(number / QUEUES) % PRIORITIES });

export function* chunks(jobs, size) {
  for (let first = 0; first < jobs.length; first += size) yield jobs.slice(first, first + size);
}

// A driver has: packages, setup, open, one(kind, args), bulk(kind, jobs), shaped(kind, pairs), later(jobs, seconds), work.
export function serve(driver) {
  const verbs = {
    hello: () => {
      const versions = {};
      for (const name of driver.packages)
        versions[name] = JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
      return { versions, node: process.versions.node };
    },
    setup: driver.setup,
    open: driver.open,
    work: driver.work,
    make: (jobs) => {
      made = Array.from({ length: Number(jobs) }, (_, number) => make(number));
    },
    count: () => ({ started }),
    delays: () => {
      const read = delays;
      delays = [];
      return { delays: read };
    },
    enqueue: async (way, ...words) => {
      if (way === "one") {
        const [jobs, kind] = words;
        for (let number = 0; number < Number(jobs); number++) await driver.one(kind, make(number));
      } else if (way === "callers") {
        const [callers, jobs, kind] = words;
        const each = Math.floor(Number(jobs) / Number(callers));
        const call = async (first) => {
          for (let number = first; number < first + each; number++) await driver.one(kind, make(number));
        };
        await Promise.all(Array.from({ length: Number(callers) }, (_, caller) => call(caller * each)));
      } else if (way === "bulk") {
        const [kind] = words;
        await driver.bulk(kind, made);
      } else if (way === "singles") {
        const [kind] = words;
        for (const args of made) await driver.one(kind, args);
      } else if (way === "queues") {
        const [kind] = words;
        await driver.shaped(kind, made.map((args, number) => [args, options(number)]));
      } else if (way === "queue_singles") {
        const [kind] = words;
        for (const [number, args] of made.entries()) await driver.shaped(kind, [[args, options(number)]]);
      } else if (way === "keys") {
        const [kind] = words;
        await driver.shaped(kind, made.map((args) => [args, { key: `user ${args.user_id}` }]));
      } else if (way === "large") {
        const [kind] = words;
        await driver.bulk(kind, made.map((args) => ({ ...args, template: "x".repeat(LARGE) })));
      } else {
        const [jobs, seconds] = words;
        const due = now() + Number(seconds);
        const list = Array.from({ length: Number(jobs) }, () => ({ began: due }));
        await driver.later(list, due - now());
      }
    },
    probe: async (jobs, low, high) => {
      const calls = [];
      for (let number = 0; number < Number(jobs); number++) {
        await sleep(1000 * (Number(low) + Math.random() * (Number(high) - Number(low))));
        const began = now();
        await driver.one("probe", { began });
        calls.push(now() - began);
      }
      return { calls };
    },
    offer: async (rate, jobs) => {
      const begin = now() + 0.05;
      const calls = [];
      for (let number = 0; number < Number(jobs); number++) {
        const due = begin + number / Number(rate);
        const wait = due - now();
        if (wait > 0) await sleep(wait * 1000);
        calls.push(driver.one("probe", { began: due }));
      }
      await Promise.all(calls);
    },
  };
  // what a library prints must not get between the answers
  for (const name of ["log", "info", "debug"]) console[name] = console.error;
  let last = Promise.resolve();
  const lines = createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    const [verb, ...words] = line.trim().split(/\s+/);
    last = last.then(async () => {
      let answer;
      try {
        answer = (await verbs[verb](...words)) ?? {};
      } catch (error) {
        answer = { error: `${error.name}: ${error.message}` };
      }
      process.stdout.write(JSON.stringify(answer) + "\n");
    });
  });
  lines.on("close", () => process.exit(0));
}
