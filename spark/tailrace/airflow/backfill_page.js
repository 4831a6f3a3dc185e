// Sends what the form of a backfill says to Airflow's own API, as the user who is logged in, and goes to the run.
"use strict";

const form = document.querySelector("form");
const said = document.querySelector("[role=status]");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const filled = new FormData(form);
  const conf = { dry_run: filled.has("dry_run") };
  for (const name of ["from", "to", "reason"]) if (filled.get(name)) conf[name] = filled.get(name);
  said.textContent = "starting…";
  const dag = `dags/${encodeURIComponent(form.dataset.dag)}`;
  const answer = await fetch(`../../api/v2/${dag}/dagRuns`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ logical_date: null, conf }),
  });
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) location.assign(`../../${dag}/runs/${encodeURIComponent(told.dag_run_id)}`);
  else said.textContent = typeof told.detail === "string" ? told.detail : `Airflow refused it (${answer.status})`;
});
