// OpenAI's client for Node.js: writes what it made of each answer, as JSON.
import OpenAI, { toFile } from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const { PLANE_URL, PLANE_KEY, PLANE_QUESTION } = process.env;
const client = new OpenAI({ baseURL: PLANE_URL, apiKey: PLANE_KEY });
const messages = [{ role: "user", content: PLANE_QUESTION }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const Total = z.object({ total: z.number(), items: z.array(z.string()) });

async function plain() {
  const { data, response } = await client.chat.completions.create({ model: "work", messages }).withResponse();
  return { said: data.choices[0].message.content, id: data._request_id, header: response.headers.get("x-request-id") };
}

async function streamed() {
  const options = { include_usage: true };
  const stream = await client.chat.completions.create({ model: "work", messages, stream: true, stream_options: options });
  const pieces = [];
  let used = 0;
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta.content) pieces.push(chunk.choices[0].delta.content);
    used = chunk.usage?.total_tokens ?? used;
  }
  return { pieces, used };
}

async function tools() {
  const called = [];
  const weather = { name: "weather", parameters, parse: JSON.parse, function: (given) => (called.push(given), "35 °C") };
  const runner = client.chat.completions.runTools({
    model: "work", messages, tools: [{ type: "function", function: weather }],
  });
  return { said: await runner.finalContent(), called };
}

async function toolsStreamed() {
  const tool = { type: "function", function: { name: "weather", parameters } };
  const stream = client.chat.completions.stream({ model: "work", messages, tools: [tool] });
  const { name, arguments: given } = (await stream.finalMessage()).tool_calls[0].function;
  return { name, given: JSON.parse(given) };
}

async function structured() {
  const format = zodResponseFormat(Total, "total");
  const answer = await client.chat.completions.parse({ model: "extract", messages, response_format: format });
  return answer.choices[0].message.parsed;
}

async function governed() {
  const headers = { "X-TerraFlow-Workload": "work" };
  const { data, response } = await client.chat.completions.create({ model: "any", messages }, { headers }).withResponse();
  return [data.terraflow.capability, response.headers.get("x-terraflow-capability")];
}

async function refused() {
  try {
    await client.chat.completions.create({ model: "poor", messages });
  } catch (error) {
    return { kind: error.constructor.name, status: error.status, code: error.code };
  }
}

async function models() {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  return ids;
}

async function ended(made) {
  while (!["completed", "cancelled"].includes(made.status)) {
    await new Promise((done) => setTimeout(done, 50));
    made = await client.batches.retrieve(made.id);
  }
  return made;
}

async function batch() {
  const url = "/v1/chat/completions";
  const line = { custom_id: "first", method: "POST", url, body: { model: "night", messages } };
  const file = await client.files.create({ file: await toFile(Buffer.from(JSON.stringify(line)), "asked.jsonl"), purpose: "batch" });
  const made = await ended(await client.batches.create({ input_file_id: file.id, endpoint: url, completion_window: "24h" }));
  const { custom_id, response } = JSON.parse(await (await client.files.content(made.output_file_id)).text());
  return { custom_id, said: response.body.choices[0].message.content };
}

async function structuredStreamed() {
  const format = zodResponseFormat(Total, "total");
  const stream = client.chat.completions.stream({ model: "work", messages, response_format: format });
  return (await stream.finalChatCompletion()).choices[0].message.parsed;
}

async function batches() {
  const url = "/v1/chat/completions";
  const line = (custom_id) => JSON.stringify({ custom_id, method: "POST", url, body: { model: "night", messages } });
  const content = Buffer.from([1, 2, 3].map((row) => line(`row ${row}`)).join("\n"));
  const file = await client.files.create({ file: await toFile(content, "asked.jsonl"), purpose: "batch" });
  const made = await client.batches.create({ input_file_id: file.id, endpoint: url, completion_window: "24h" });
  const again = await client.batches.create({ input_file_id: file.id, endpoint: url, completion_window: "24h" });
  const { status } = await client.batches.cancel(again.id);
  const listed = [];
  for await (const each of client.batches.list({ limit: 1 })) listed.push(each.id);
  const { deleted } = await client.files.delete(file.id);
  const gone = await client.files.retrieve(file.id).catch((error) => error.constructor.name);
  const cancelled = ["cancelling", "cancelled", "completed"].includes(status);
  for (const each of [made, again]) await ended(each);
  return { cancelled, newest: listed.slice(0, 2).join() === [again.id, made.id].join(), deleted, gone };
}

const parts = { plain, streamed, tools, toolsStreamed, structured, structuredStreamed, governed, refused, models, batch, batches };
const heard = {};
for (const [name, part] of Object.entries(parts)) heard[name] = await part();
console.log(JSON.stringify(heard));
