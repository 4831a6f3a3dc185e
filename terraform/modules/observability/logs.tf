# What the drivers print: Spark's own lines, and tailrace's, which are JSON objects (TAILRACE_LOG_FORMAT=json).
resource "aws_cloudwatch_log_group" "this" {
  for_each = toset(["stream", "backfill"])

  name              = "/${var.context.name}/${each.key}"
  retention_in_days = var.log_days
  kms_key_id        = var.kms_key_arn
}

locals {
  metrics = "${var.context.name}/tailrace"

  # A metric from each kind of line. The fields are those of docs/observing.md; a test holds each to what the code writes.
  filters = {
    Epochs           = { group = "stream", pattern = "{ $.event = \"epoch\" }", value = "1", unit = "Count" }
    EpochSeconds     = { group = "stream", pattern = "{ $.event = \"epoch\" }", value = "$.seconds", unit = "Seconds" }
    Records          = { group = "stream", pattern = "{ $.event = \"epoch\" }", value = "$.records", unit = "Count" }
    RejectedRecords  = { group = "stream", pattern = "{ $.event = \"epoch\" }", value = "$.rejected", unit = "Count" }
    WatermarkLag     = { group = "stream", pattern = "{ $.event = \"epoch\" }", value = "$.watermark_lag_seconds", unit = "Seconds" }
    LateRecords      = { group = "stream", pattern = "{ $.event = \"late_records\" }", value = "$.late", unit = "Count" }
    HeldBack         = { group = "stream", pattern = "{ $.event = \"watermark_held_back\" }", value = "1", unit = "Count" }
    CommitsRetried   = { group = "stream", pattern = "{ $.event = \"commit_retried\" }", value = "1", unit = "Count" }
    LeaseLost        = { group = "stream", pattern = "{ $.event = \"lease_lost\" }", value = "1", unit = "Count" }
    StreamFailed     = { group = "stream", pattern = "{ $.event = \"failed\" && $.command = \"stream\" }", value = "1", unit = "Count" }
    BackfillFailed   = { group = "backfill", pattern = "{ $.event = \"backfill_failed\" || ($.event = \"failed\" && $.command = \"backfill\") }", value = "1", unit = "Count" }
    BackfillGaveWay  = { group = "backfill", pattern = "{ $.event = \"backfill_gave_way\" }", value = "1", unit = "Count" }
    BackfillsWritten = { group = "backfill", pattern = "{ $.event = \"backfill_committed\" }", value = "1", unit = "Count" }
  }
}

resource "aws_cloudwatch_log_metric_filter" "this" {
  for_each = local.filters

  name           = "${var.context.name}-${each.key}"
  log_group_name = aws_cloudwatch_log_group.this[each.value.group].name
  pattern        = each.value.pattern

  metric_transformation {
    name       = each.key
    namespace  = local.metrics
    value      = each.value.value
    unit       = each.value.unit
    dimensions = { Log = "$.log" }
  }
}
