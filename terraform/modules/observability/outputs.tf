output "log_groups" {
  description = "Names of the log groups of the drivers: stream and backfill."
  value       = { for name, one in aws_cloudwatch_log_group.this : name => one.name }
}

output "log_group_arns" {
  description = "ARNs of the log groups of the drivers, without :* at their end."
  value       = { for name, one in aws_cloudwatch_log_group.this : name => "arn:${var.context.partition}:logs:${var.context.region}:${var.context.account_id}:log-group:${one.name}" }
}

output "topic_arn" {
  description = "ARN of the topic that alarms and budgets are told to."
  value       = aws_sns_topic.alarms.arn
}

output "alarms" {
  description = "Names of the alarms."
  value = sort([
    for one in concat(values(aws_cloudwatch_metric_alarm.at_once), values(aws_cloudwatch_metric_alarm.lag), values(aws_cloudwatch_metric_alarm.ahead), values(aws_cloudwatch_metric_alarm.silent)) : one.alarm_name
  ])
}

output "filters" {
  description = "The metric filters: by metric, the pattern over the JSON lines and the value that is taken out of them."
  value       = { for name, one in local.filters : name => { pattern = one.pattern, value = one.value } }
}

output "metrics_namespace" {
  description = "Namespace of the metrics in CloudWatch."
  value       = local.metrics
}
