resource "aws_budgets_budget" "this" {
  count = var.monthly_budget == null ? 0 : 1

  name         = "${var.context.name}-monthly"
  budget_type  = "COST"
  time_unit    = "MONTHLY"
  limit_amount = tostring(var.monthly_budget)
  limit_unit   = "USD"

  dynamic "cost_filter" {
    for_each = var.budget_tag[*]
    content {
      name   = "TagKeyValue"
      values = ["user:${cost_filter.value}"]
    }
  }

  notification {
    comparison_operator       = "GREATER_THAN"
    notification_type         = "ACTUAL"
    threshold                 = 80
    threshold_type            = "PERCENTAGE"
    subscriber_sns_topic_arns = [aws_sns_topic.alarms.arn]
  }

  notification {
    comparison_operator       = "GREATER_THAN"
    notification_type         = "FORECASTED"
    threshold                 = 100
    threshold_type            = "PERCENTAGE"
    subscriber_sns_topic_arns = [aws_sns_topic.alarms.arn]
  }

  # Budgets tries whether it may publish as soon as it is made.
  depends_on = [aws_sns_topic_policy.alarms]
}
