// redlock 4 and 5 for Node, with their own delays: 200 ms, give or take 100. ARGV: ports, key, version.

import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

// The packages are not beside this file.
const require = createRequire(process.cwd() + "/");
const Redis = require("ioredis");

const [ports, key, version] = process.argv.slice(2);
// A server that is down is an error, and not something to wait for.
const servers = ports.split(",").map((port) => new Redis(Number(port), { maxRetriesPerRequest: 1 }));
for (const server of servers) server.on("error", () => {});
const [redis] = servers;
const module_ = require(version === "4" ? "redlock4" : "redlock");
const Redlock = module_.default ?? module_;
const patient = new Redlock(servers, { retryCount: -1 });
const hasty = new Redlock(servers, { retryCount: 0 });
for (const redlock of [patient, hasty]) redlock.on(version === "4" ? "clientError" : "error", () => {});

let lock;

async function acquire(redlock, lease) {
  lock = version === "4" ? await redlock.lock(key, lease) : await redlock.acquire([key], lease);
}

async function tryTake(lease) {
  try {
    await acquire(hasty, lease);
    return true;
  } catch {
    return false;
  }
}

async function release() {
  try {
    // Through the hasty one: it would try again for seconds to give back what it has not.
    await (version === "4" ? hasty.unlock(lock) : hasty.release(lock));
    return true;
  } catch {
    return false;
  }
}

async function work(time, lease) {
  const end = performance.now() + time;
  let sections = 0;
  let longest = 0;
  while (performance.now() < end) {
    const asked = performance.now();
    await acquire(patient, lease);
    longest = Math.max(longest, performance.now() - asked);
    const count = Number((await redis.get("counter")) ?? 0);
    await sleep(2);
    await redis.set("counter", count + 1);
    if (!(await release())) throw new Error("lost the lock while it was held");
    sections += 1;
  }
  return `worked ${sections} ${longest.toFixed(0)}`;
}

async function cycle(time, lease) {
  const end = performance.now() + time;
  let cycles = 0;
  let longest = 0;
  while (performance.now() < end) {
    const asked = performance.now();
    await acquire(patient, lease);
    longest = Math.max(longest, performance.now() - asked);
    await release();
    cycles += 1;
  }
  return `cycled ${cycles} ${longest.toFixed(0)}`;
}

async function answer(line) {
  const [word, ...numbers] = line.split(" ");
  const [first, second] = numbers.map(Number);
  switch (word) {
    case "take":
      await acquire(patient, first);
      return "held";
    case "try":
      return (await tryTake(first)) ? "held" : "busy";
    case "release":
      return (await release()) ? "released" : "gone";
    case "work":
      return work(first, second);
    case "cycle":
      return cycle(first, second);
  }
}

await redis.ping();
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) console.log(await answer(line));
process.exit(0);
