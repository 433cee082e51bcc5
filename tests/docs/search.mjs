// Asks the search worker of the built site, as its pages do. Arguments: the site, and questions as a JSON list.
// Prints for each question the places that it answers, best first, as JSON.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { runInThisContext } from "node:vm";

const [site, questions] = process.argv.slice(2);
const workers = join(site, "assets", "javascripts", "workers");
const index = JSON.parse(readFileSync(join(site, "search.json"), "utf8"));
const INDEX = 0, READY = 1, QUERY = 2, RESULT = 3; // types of messages between a page and its worker

const answers = [];
globalThis.self = { postMessage: (message) => answers.push(message) };
runInThisContext(readFileSync(join(workers, readdirSync(workers).find((name) => name.startsWith("search."))), "utf8"));

async function ask(type, data, expected) {
  self.onmessage({ data: { type, data } });
  while (answers.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  const answer = answers.shift();
  if (answer.type !== expected) throw new Error(`the worker answered with message ${answer.type}`);
  return answer.data;
}

await ask(INDEX, index, READY);
const found = {};
for (const input of JSON.parse(questions)) {
  // The filter is what a page sends when no tag is chosen.
  const filter = {
    input: { type: "operator", data: { operator: "and", operands: [] } },
    aggregation: { input: [{ type: "term", data: { field: "tags" } }] },
  };
  const result = await ask(QUERY, { input, filter }, RESULT);
  found[input] = result.items.map((item) => index.items[item.id].location);
}
console.log(JSON.stringify(found));
