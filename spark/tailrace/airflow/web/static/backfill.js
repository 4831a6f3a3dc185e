// Triggers the DAG by Airflow's own API, as the person who is logged in, with what the form has.
"use strict";

const form = document.querySelector("form");
const said = form.querySelector("[role=status]");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = new FormData(form);
  const conf = { from: fields.get("from"), to: fields.get("to"), dry_run: fields.has("dry_run") };
  if (fields.get("reason")) conf.reason = fields.get("reason");
  said.textContent = "asking Airflow …";
  const answer = await fetch(form.dataset.runs, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify({ logical_date: null, conf }),
  });
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) {
    top.location.assign(`${form.dataset.page}/runs/${encodeURIComponent(told.dag_run_id)}`);
    return;
  }
  const why = Array.isArray(told.detail) ? told.detail.map((one) => one.msg).join("; ") : told.detail;
  said.textContent = `${answer.status}: ${typeof why === "string" ? why : JSON.stringify(why ?? "no reason given")}`;
});
