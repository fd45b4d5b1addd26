// Checks the signed statement of an export with @sigstore/verify and uses nothing of TerraFlow.
//
// A line asks: the export's folder, and a file with the log's public key as PEM, between a tab. A line answers:
// "accepted", or what is wrong.
"use strict";

const { createHash, createPublicKey } = require("node:crypto");
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { createInterface } = require("node:readline");
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity, toTrustMaterial } = require("@sigstore/verify");

const NONE = { ctlogThreshold: 0, tlogThreshold: 0, timestampThreshold: 0 };

function verify(folder, keyFile) {
  const envelope = JSON.parse(readFileSync(join(folder, "statement.dsse.json"), "utf8"));
  const bundle = bundleFromJSON({
    mediaType: "application/vnd.dev.sigstore.bundle.v0.3+json",
    verificationMaterial: { publicKey: { hint: envelope.signatures[0].keyid }, tlogEntries: [] },
    dsseEnvelope: envelope,
  });
  const key = createPublicKey(readFileSync(keyFile));
  const trusted = toTrustMaterial(
    { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] },
    () => ({ publicKey: key, validFor: () => true }),
  );
  new Verifier(trusted, NONE).verify(toSignedEntity(bundle));
  const statement = JSON.parse(bundle.content.dsseEnvelope.payload.toString("utf8"));
  for (const subject of statement.subject) {
    const digest = createHash("sha256").update(readFileSync(join(folder, subject.name))).digest("hex");
    if (digest !== subject.digest.sha256) throw new Error(`${subject.name} has another digest`);
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const [folder, keyFile] = line.split("\t");
  try {
    verify(folder, keyFile);
    console.log("accepted");
  } catch (trouble) {
    console.log(`refused: ${String(trouble.message).replaceAll("\n", " ")}`);
  }
});
