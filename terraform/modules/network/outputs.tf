output "vpc_id" {
  description = "Id of the VPC, made or existing."
  value       = local.vpc
}

output "subnet_ids" {
  description = "Ids of the private subnets."
  value       = local.subnets
}

output "jobs_security_group_id" {
  description = "Security group of the workers of job runs."
  value       = aws_security_group.this["jobs"].id
}

output "airflow_security_group_id" {
  description = "Security group of Airflow; null without it."
  value       = var.airflow ? aws_security_group.this["airflow"].id : null
}

output "kafka_security_group_id" {
  description = "Security group of the brokers; null without an MSK cluster."
  value       = var.kafka ? aws_security_group.this["kafka"].id : null
}

output "endpoint_services" {
  description = "Services that have an endpoint of their own, S3's gateway apart."
  value       = sort(local.interface_services)
}
