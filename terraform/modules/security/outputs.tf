output "kms_key_arn" {
  description = "ARN of the key that everything is encrypted with."
  value       = local.kms_key
}

output "stream_role_arn" {
  description = "ARN of the role of a stream's job runs."
  value       = aws_iam_role.stream.arn
}

output "backfill_role_arn" {
  description = "ARN of the role of backfills and maintenance."
  value       = aws_iam_role.backfill.arn
}

output "analyst_role_arn" {
  description = "ARN of the role that analysts take; null where nobody is named."
  value       = one(aws_iam_role.analyst[*].arn)
}

output "airflow_role_arn" {
  description = "ARN of MWAA's execution role; null without it."
  value       = one(aws_iam_role.airflow[*].arn)
}

output "secret_arns" {
  description = "ARNs of the secrets, by name."
  value       = { for name, one in aws_secretsmanager_secret.this : name => one.arn }
}

output "policies" {
  description = "Each role's policy, as JSON, for review and for the test of the table of actions."
  value = {
    stream   = jsonencode(local.stream)
    backfill = jsonencode(local.backfill)
    analyst  = jsonencode(local.analyst)
    airflow  = jsonencode(local.airflow)
  }
}
