// Anthropic's client for Node.js: writes what it made of each answer, as JSON.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

const { PLANE_URL, PLANE_KEY, PLANE_QUESTION } = process.env;
const client = new Anthropic({ baseURL: PLANE_URL.replace(/\/v1$/, ""), apiKey: PLANE_KEY });
const asked = { model: "work", max_tokens: 50, messages: [{ role: "user", content: PLANE_QUESTION }] };
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tool = { name: "weather", input_schema: schema };
const Total = z.object({ total: z.number(), items: z.array(z.string()) });

async function plain() {
  const { data, response } = await client.messages.create(asked).withResponse();
  return { said: data.content[0].text, id: data._request_id, header: response.headers.get("request-id") };
}

async function streamed() {
  const pieces = [];
  const stream = client.messages.stream(asked).on("text", (piece) => pieces.push(piece));
  const { usage } = await stream.finalMessage();
  return { pieces, used: usage.input_tokens + usage.output_tokens };
}

async function tools() {
  const called = [];
  const run = (given) => (called.push(given), "35 °C");
  const weather = { ...tool, type: "custom", parse: (given) => given, run };
  const last = await client.beta.messages.toolRunner({ ...asked, tools: [weather] });
  return { said: last.content[0].text, called };
}

async function toolsStreamed() {
  const { content } = await client.messages.stream({ ...asked, tools: [tool] }).finalMessage();
  return { name: content[0].name, given: content[0].input };
}

async function structured() {
  const format = zodOutputFormat(Total);
  const answer = await client.messages.parse({ ...asked, model: "extract", output_config: { format } });
  return answer.parsed_output;
}

async function structuredStreamed() {
  const format = zodOutputFormat(Total);
  const stream = client.messages.stream({ ...asked, output_config: { format } });
  return (await stream.finalMessage()).parsed_output;
}

async function governed() {
  const headers = { "X-TerraFlow-Workload": "work" };
  const { data, response } = await client.messages.create({ ...asked, model: "any" }, { headers }).withResponse();
  return [data.terraflow.capability, response.headers.get("x-terraflow-capability")];
}

async function refused() {
  try {
    await client.messages.create({ ...asked, model: "poor" });
  } catch (error) {
    return { kind: error.constructor.name, status: error.status, code: error.error.terraflow.reason_code };
  }
}

async function models() {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  return ids;
}

async function counted() {
  const { input_tokens } = await client.messages.countTokens({ model: asked.model, messages: asked.messages });
  return input_tokens;
}

const parts = { plain, streamed, tools, toolsStreamed, structured, structuredStreamed, governed, refused, models, counted };
const heard = {};
for (const [name, part] of Object.entries(parts)) heard[name] = await part();
console.log(JSON.stringify(heard));
