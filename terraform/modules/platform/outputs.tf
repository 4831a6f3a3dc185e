output "runner" {
  description = "For streams and for backfills, the arguments of tailrace.aws.emr.Application: id, role, place, definitions, environment, conf and log_group."
  value       = local.runner
}

output "job_environment" {
  description = "The variables that a job or a shell needs to find the lake."
  value       = local.job_environment
}

output "artifacts" {
  description = "Where the artifacts are uploaded to."
  value       = local.place
}

output "buckets" {
  description = "Names of the buckets: of the tables, and of the artifacts."
  value       = { lake = module.lake.lake_bucket, artifacts = module.lake.artifacts_bucket }
}

output "roles" {
  description = "ARNs of the roles; null for one that is not made."
  value = {
    stream   = module.security.stream_role_arn
    backfill = module.security.backfill_role_arn
    analyst  = module.security.analyst_role_arn
    airflow  = module.security.airflow_role_arn
  }
}

output "policies" {
  description = "Each role's policy, as JSON."
  value       = module.security.policies
}

output "filters" {
  description = "The metric filters over the drivers' JSON lines."
  value       = module.observability.filters
}

output "alarms" {
  description = "Names of the alarms."
  value       = module.observability.alarms
}

output "alarms_topic_arn" {
  description = "ARN of the topic of alarms."
  value       = module.observability.topic_arn
}

output "kms_key_arn" {
  description = "ARN of the key."
  value       = module.security.kms_key_arn
}

output "network" {
  description = "The VPC, its private subnets, and the services that have an endpoint in it."
  value       = { vpc_id = module.network.vpc_id, subnet_ids = module.network.subnet_ids, endpoints = module.network.endpoint_services }
}

output "airflow_url" {
  description = "Where Airflow's pages are; null without MWAA."
  value       = module.orchestration.airflow_url
}

output "secret_arns" {
  description = "ARNs of the secrets, by name; their values are put by whoever knows them."
  value       = module.security.secret_arns
}
