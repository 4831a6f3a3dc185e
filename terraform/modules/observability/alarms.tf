resource "aws_sns_topic" "alarms" {
  name              = "${var.context.name}-alarms"
  kms_master_key_id = var.kms_key_arn
}

resource "aws_sns_topic_policy" "alarms" {
  arn = aws_sns_topic.alarms.arn
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "AlarmsAndBudgetsOfThisAccount"
      Effect    = "Allow"
      Principal = { Service = ["cloudwatch.amazonaws.com", "budgets.amazonaws.com"] }
      Action    = "sns:Publish"
      Resource  = aws_sns_topic.alarms.arn
      Condition = { StringEquals = { "aws:SourceAccount" = var.context.account_id } }
    }]
  })
}

resource "aws_sns_topic_subscription" "emails" {
  for_each = toset(var.emails)

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.key
}

locals {
  lagging = { for log, one in var.streams : log => one.lag_seconds if one.lag_seconds > 0 }
  silent  = { for log, one in var.streams : log => one.silent_minutes if one.silent_minutes > 0 }

  # What is wrong as soon as it is there once, by stream.
  at_once = merge([
    for log in keys(var.streams) : {
      "${log}-stream-failed"   = { log = log, metric = "StreamFailed", says = "The stream of log ${log} ended with an error; its last line says which." }
      "${log}-lease-lost"      = { log = log, metric = "LeaseLost", says = "Another stream took the lease of log ${log}: run only one." }
      "${log}-backfill-failed" = { log = log, metric = "BackfillFailed", says = "A backfill of log ${log} failed; nothing of it is in the answers." }
    }
  ]...)
}

resource "aws_cloudwatch_metric_alarm" "at_once" {
  for_each = local.at_once

  alarm_name          = "${var.context.name}-${each.key}"
  alarm_description   = each.value.says
  namespace           = local.metrics
  metric_name         = each.value.metric
  dimensions          = { Log = each.value.log }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_metric_alarm" "lag" {
  for_each = local.lagging

  alarm_name          = "${var.context.name}-${each.key}-watermark-lag"
  alarm_description   = "The watermark of log ${each.key} is more than ${each.value} seconds behind the epochs' processing time: no window completes in time."
  namespace           = local.metrics
  metric_name         = "WatermarkLag"
  dimensions          = { Log = each.key }
  statistic           = "Maximum"
  period              = 300
  evaluation_periods  = 3
  threshold           = each.value
  comparison_operator = "GreaterThanThreshold"
  # Without epochs nothing is known of it; that is the other alarm's.
  treat_missing_data = "ignore"
  alarm_actions      = [aws_sns_topic.alarms.arn]
  ok_actions         = [aws_sns_topic.alarms.arn]
}

# A record of a later day has carried the watermark there, and the records before it come too late.
resource "aws_cloudwatch_metric_alarm" "ahead" {
  for_each = local.lagging

  alarm_name          = "${var.context.name}-${each.key}-watermark-ahead"
  alarm_description   = "The watermark of log ${each.key} is more than a day ahead of the epochs' processing time: what comes now is too late. See `tailrace status`, and `ahead` of the log."
  namespace           = local.metrics
  metric_name         = "WatermarkLag"
  dimensions          = { Log = each.key }
  statistic           = "Minimum"
  period              = 300
  evaluation_periods  = 1
  threshold           = -86400
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "ignore"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_metric_alarm" "silent" {
  for_each = local.silent

  alarm_name          = "${var.context.name}-${each.key}-no-epochs"
  alarm_description   = "Log ${each.key} has had no epoch for ${each.value} minutes: its stream does not run, or its source is silent."
  namespace           = local.metrics
  metric_name         = "Epochs"
  dimensions          = { Log = each.key }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = ceil(each.value / 5)
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  # A stream that does not run says nothing at all.
  treat_missing_data = "breaching"
  alarm_actions      = [aws_sns_topic.alarms.arn]
  ok_actions         = [aws_sns_topic.alarms.arn]
}
