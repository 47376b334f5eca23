// 24 jobs at a time out of a local queue of 500, completions in batches.

export async function open(config, load) {
  const { Logger, makeWorkerUtils, run } = await load("graphile-worker");
  const logger = new Logger(() => () => {});
  const utils = await makeWorkerUtils({ connectionString: config.url, logger });
  await utils.migrate();
  return {
    enqueue: (text) => utils.addJob("noop", { text }),
    enqueueBulk: (texts) =>
      utils.addJobs(texts.map((text) => ({ identifier: "noop", payload: { text } }))),
    close: () => utils.release(),
    async work(ledger) {
      await ledger.waitForStart();
      await run({
        logger,
        noHandleSignals: true,
        taskList: { noop: async ({ text }) => ledger.recordRun(text) },
        preset: {
          worker: {
            connectionString: config.url,
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
