output "stream_application" {
  description = "Id and ARN of the application that streams run on."
  value       = { id = aws_emrserverless_application.stream.id, arn = aws_emrserverless_application.stream.arn }
}

output "backfill_application" {
  description = "Id and ARN of the application that backfills and maintenance run on."
  value       = { id = aws_emrserverless_application.backfill.id, arn = aws_emrserverless_application.backfill.arn }
}

output "kafka_bootstrap" {
  description = "Brokers of the MSK cluster, for clients that sign in with IAM; null without one."
  value       = one(aws_msk_serverless_cluster.this[*].bootstrap_brokers_sasl_iam)
}

output "kafka_cluster_name" {
  description = "Name of the MSK cluster; null without one."
  value       = one(aws_msk_serverless_cluster.this[*].cluster_name)
}
