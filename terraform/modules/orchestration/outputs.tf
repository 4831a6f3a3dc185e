output "airflow_url" {
  description = "Where Airflow's pages are; null without MWAA."
  value       = one(aws_mwaa_environment.this[*].webserver_url)
}

output "airflow_name" {
  description = "Name of the MWAA environment; null without one."
  value       = one(aws_mwaa_environment.this[*].name)
}

output "runner_key" {
  description = "Key of runner.json in the bucket of artifacts."
  value       = aws_s3_object.runner.key
}
