// 24 jobs at a time out of a local queue of 500, completions in batches.

export async function open(place, load) {
  const { Logger, makeWorkerUtils, run } = await load("graphile-worker");
  const logger = new Logger(() => () => {});
  const utils = await makeWorkerUtils({ connectionString: place.url, logger });
  await utils.migrate();
  return {
    put: (text) => utils.addJob("noop", { text }),
    putMany: (texts) =>
      utils.addJobs(texts.map((text) => ({ identifier: "noop", payload: { text } }))),
    close: () => utils.release(),
    async work(ledger) {
      await ledger.begin();
      await run({
        logger,
        noHandleSignals: true,
        taskList: { noop: async ({ text }) => ledger.ran(text) },
        preset: {
          worker: {
            connectionString: place.url,
            concurrentJobs: 24,
            maxPoolSize: 10,
            localQueue: { size: 500 },
            completeJobBatchDelay: 0,
            failJobBatchDelay: 0,
          },
        },
      });
    },
  };
}
