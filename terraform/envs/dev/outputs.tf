output "runner" {
  description = "For streams and for backfills, the arguments of tailrace.aws.emr.Application."
  value       = module.platform.runner
}

output "job_environment" {
  description = "The variables that a job or a shell needs to find the lake."
  value       = module.platform.job_environment
}

output "artifacts" {
  description = "Where the artifacts are uploaded to."
  value       = module.platform.artifacts
}

output "roles" {
  description = "ARNs of the roles; null for one that is not made."
  value       = module.platform.roles
}

output "alarms" {
  description = "Names of the alarms, and the topic that they are told to."
  value       = { names = module.platform.alarms, topic = module.platform.alarms_topic_arn }
}

output "network" {
  description = "The VPC, its private subnets, and the services that have an endpoint in it."
  value       = module.platform.network
}

output "airflow_url" {
  description = "Where Airflow's pages are; null without MWAA."
  value       = module.platform.airflow_url
}

output "secret_arns" {
  description = "ARNs of the secrets, by name."
  value       = module.platform.secret_arns
}
