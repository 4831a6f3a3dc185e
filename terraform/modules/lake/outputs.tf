output "lake_bucket" {
  description = "Name of the bucket of the tables."
  value       = aws_s3_bucket.this["lake"].id
}

output "lake_bucket_arn" {
  description = "ARN of the bucket of the tables."
  value       = local.arns["lake"]
}

output "artifacts_bucket" {
  description = "Name of the bucket of the jobs' code, outcomes and logs."
  value       = aws_s3_bucket.this["artifacts"].id
}

output "artifacts_bucket_arn" {
  description = "ARN of the bucket of the jobs' code, outcomes and logs."
  value       = local.arns["artifacts"]
}

output "warehouse" {
  description = "Address of the warehouse: TAILRACE_WAREHOUSE."
  value       = "s3://${aws_s3_bucket.this["lake"].id}/${var.warehouse_prefix}"
}

output "place" {
  description = "Address that the artifacts are uploaded to and that job runs leave outcomes and logs under."
  value       = "s3://${aws_s3_bucket.this["artifacts"].id}/${var.artifacts_prefix}"
}

output "namespace" {
  description = "Glue database of the lake: TAILRACE_NAMESPACE."
  value       = aws_glue_catalog_database.this[var.namespace].name
}
