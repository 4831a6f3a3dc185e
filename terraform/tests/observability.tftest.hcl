mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  context = {
    name       = "tailrace-test"
    account_id = "123456789012"
    region     = "eu-central-1"
  }
  kms_key_arn  = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555"
  applications = { stream = "a1", backfill = "b2" }
  streams = {
    clicks  = {}
    flights = { lag_seconds = 0, silent_minutes = 0 }
    rides   = { lag_seconds = 60, silent_minutes = 30 }
  }
  emails = ["on-call@example.com"]
}

run "each_stream_has_its_alarms_and_they_tell_somebody" {
  module {
    source = "./modules/observability"
  }

  assert {
    condition = toset(output.alarms) == toset([
      "tailrace-test-clicks-backfill-failed", "tailrace-test-clicks-lease-lost", "tailrace-test-clicks-no-epochs",
      "tailrace-test-clicks-stream-failed", "tailrace-test-clicks-watermark-ahead", "tailrace-test-clicks-watermark-lag", "tailrace-test-flights-backfill-failed",
      "tailrace-test-flights-lease-lost", "tailrace-test-flights-stream-failed", "tailrace-test-rides-backfill-failed",
      "tailrace-test-rides-lease-lost", "tailrace-test-rides-no-epochs", "tailrace-test-rides-stream-failed",
      "tailrace-test-rides-watermark-ahead", "tailrace-test-rides-watermark-lag",
    ])
    error_message = "alarms of each stream, without those that are off"
  }
  assert {
    condition = alltrue([
      for one in concat(values(aws_cloudwatch_metric_alarm.at_once), values(aws_cloudwatch_metric_alarm.lag), values(aws_cloudwatch_metric_alarm.ahead), values(aws_cloudwatch_metric_alarm.silent)) :
      one.alarm_actions == toset([aws_sns_topic.alarms.arn])
    ])
    error_message = "each alarm is told"
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.lag["rides"].threshold == 60 && aws_cloudwatch_metric_alarm.lag["clicks"].threshold == 900 && aws_cloudwatch_metric_alarm.lag["rides"].dimensions == tomap({ Log = "rides" })
    error_message = "each stream has its own threshold"
  }
  assert {
    condition     = alltrue([for one in values(aws_cloudwatch_metric_alarm.ahead) : one.statistic == "Minimum" && one.threshold == -86400 && one.comparison_operator == "LessThanThreshold"])
    error_message = "a watermark that is a day ahead is told, as its lag is below zero"
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.silent["rides"].treat_missing_data == "breaching" && aws_cloudwatch_metric_alarm.silent["rides"].evaluation_periods == 6
    error_message = "a stream that says nothing is told of after 30 minutes"
  }
  assert {
    condition     = alltrue([for one in values(aws_cloudwatch_metric_alarm.at_once) : one.treat_missing_data == "notBreaching" && one.threshold == 1])
    error_message = "a failure is told at once, and no failure is none"
  }
}

run "alarms_are_of_metrics_that_a_filter_makes" {
  module {
    source = "./modules/observability"
  }

  assert {
    condition = alltrue([
      for one in concat(values(aws_cloudwatch_metric_alarm.at_once), values(aws_cloudwatch_metric_alarm.lag), values(aws_cloudwatch_metric_alarm.ahead), values(aws_cloudwatch_metric_alarm.silent)) :
      contains([for f in values(aws_cloudwatch_log_metric_filter.this) : "${f.metric_transformation[0].namespace} ${f.metric_transformation[0].name}"], "${one.namespace} ${one.metric_name}")
    ])
    error_message = "an alarm of a metric that nobody makes never rings"
  }
  assert {
    condition     = alltrue([for f in values(aws_cloudwatch_log_metric_filter.this) : f.metric_transformation[0].dimensions == tomap({ Log = "$.log" })])
    error_message = "each metric is told apart by log"
  }
  assert {
    condition = alltrue(flatten([
      for widget in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets : [
        for line in widget.properties.metrics : contains(keys(output.filters), line[1]) if length(line) > 1
      ]
    ]))
    error_message = "the dashboard draws metrics that there are"
  }
  assert {
    condition     = length(jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets) == 7 && aws_cloudwatch_dashboard.this.dashboard_name == "tailrace-test"
    error_message = "a dashboard with the name of all else"
  }
}

run "logs_and_the_topic_are_encrypted" {
  module {
    source = "./modules/observability"
  }

  assert {
    condition     = alltrue([for one in values(aws_cloudwatch_log_group.this) : one.kms_key_id == var.kms_key_arn && one.retention_in_days == 365])
    error_message = "logs are encrypted, and end"
  }
  assert {
    condition     = aws_sns_topic.alarms.kms_master_key_id == var.kms_key_arn && aws_sns_topic.alarms.name == "tailrace-test-alarms"
    error_message = "the topic is encrypted"
  }
  assert {
    condition     = jsondecode(aws_sns_topic_policy.alarms.policy).Statement[0].Condition.StringEquals["aws:SourceAccount"] == "123456789012"
    error_message = "alarms of this account alone publish"
  }
  assert {
    condition     = length(aws_sns_topic_subscription.emails) == 1 && length(aws_budgets_budget.this) == 0
    error_message = "who is named is told; no budget unless it is asked for"
  }
}

run "a_budget_when_asked_for" {
  module {
    source = "./modules/observability"
  }
  variables {
    monthly_budget = 500
    budget_tag     = "Environment$test"
    streams        = {}
  }

  assert {
    condition     = aws_budgets_budget.this[0].limit_amount == "500" && length(aws_budgets_budget.this[0].notification) == 2
    error_message = "told when much is spent, and when more will be"
  }
  assert {
    condition     = one([for one in aws_budgets_budget.this[0].cost_filter : one.values]) == tolist(["user:Environment$test"])
    error_message = "of this environment's costs"
  }
  assert {
    condition     = length(output.alarms) == 0 && length(jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets) == 7
    error_message = "without streams there are no alarms, and the dashboard draws what comes"
  }
}

run "bad_inputs_are_refused" {
  module {
    source = "./modules/observability"
  }
  command = plan
  variables {
    log_days       = 100
    emails         = ["nobody"]
    monthly_budget = 0
    streams        = { "Clicks" = { lag_seconds = -1, silent_minutes = 1 } }
  }
  expect_failures = [var.log_days, var.emails, var.monthly_budget, var.streams]
}
