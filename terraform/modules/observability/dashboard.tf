locals {
  logs = sort(keys(var.streams))

  # Of each: title, statistic, and the metrics in it.
  graphs = [
    { title = "Watermark behind, seconds", stat = "Maximum", metrics = ["WatermarkLag"] },
    { title = "Epochs", stat = "Sum", metrics = ["Epochs"] },
    { title = "Seconds an epoch", stat = "p95", metrics = ["EpochSeconds"] },
    { title = "Records", stat = "Sum", metrics = ["Records", "RejectedRecords", "LateRecords"] },
    { title = "What somebody should look at", stat = "Sum", metrics = ["StreamFailed", "LeaseLost", "HeldBack", "CommitsRetried"] },
    { title = "Backfills", stat = "Sum", metrics = ["BackfillsWritten", "BackfillGaveWay", "BackfillFailed"] },
  ]

  # An empty list is none to CloudWatch: without streams the graphs have the metrics of all logs.
  drawn = [
    for graph in local.graphs : merge(graph, {
      lines = length(local.logs) > 0 ? [
        for pair in setproduct(graph.metrics, local.logs) : jsonencode([local.metrics, pair[0], "Log", pair[1], { label = "${pair[1]} ${pair[0]}" }])
        ] : [
        for metric in graph.metrics : jsonencode([{ expression = "SEARCH('{${local.metrics},Log} MetricName=\"${metric}\"', '${graph.stat}', 300)" }])
      ]
    })
  ]
}

resource "aws_cloudwatch_dashboard" "this" {
  dashboard_name = var.context.name
  dashboard_body = jsonencode({
    widgets = concat(
      [
        for index, graph in local.drawn : {
          type   = "metric"
          x      = (index % 2) * 12
          y      = floor(index / 2) * 6
          width  = 12
          height = 6
          properties = {
            title   = graph.title
            region  = var.context.region
            stat    = graph.stat
            period  = 300
            view    = "timeSeries"
            metrics = [for line in graph.lines : jsondecode(line)]
          }
        }
      ],
      [{
        type   = "metric"
        x      = 0
        y      = ceil(length(local.graphs) / 2) * 6
        width  = 24
        height = 6
        properties = {
          title  = "vCPUs that EMR Serverless gave"
          region = var.context.region
          view   = "timeSeries"
          metrics = [
            for name in ["stream", "backfill"] :
            [{ expression = "SEARCH('Namespace=\"AWS/EMRServerless\" MetricName=\"CPUAllocated\" ApplicationId=\"${var.applications[name]}\"', 'Maximum', 300)", label = name }]
          ]
        }
      }],
    )
  })
}
