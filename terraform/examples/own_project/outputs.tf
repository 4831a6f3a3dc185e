output "artifacts" {
  description = "Where the bundle goes: `tailrace bundle --to` takes this address."
  value       = module.platform.artifacts
}

output "runner" {
  description = "What the project's DAGs run with: the arguments of `tailrace.aws.Application`, for streams and backfills."
  value       = module.platform.runner
}

output "job_environment" {
  description = "The settings of the lake, for tailrace in a shell and in Airflow."
  value       = module.platform.job_environment
}
