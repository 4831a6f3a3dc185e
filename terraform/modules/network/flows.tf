locals {
  flow_logs = local.create && var.flow_logs
}

resource "aws_cloudwatch_log_group" "flows" {
  count = local.flow_logs ? 1 : 0

  name              = "/${var.context.name}/flows"
  retention_in_days = var.log_days
  kms_key_id        = var.kms_key_arn
}

resource "aws_iam_role" "flows" {
  count = local.flow_logs ? 1 : 0

  name        = "${var.context.name}-flows"
  description = "Writes the VPC's flow logs"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "FlowLogsOfThisAccount"
      Effect    = "Allow"
      Principal = { Service = "vpc-flow-logs.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = var.context.account_id } }
    }]
  })
}

resource "aws_iam_role_policy" "flows" {
  count = local.flow_logs ? 1 : 0

  name = "${var.context.name}-flows"
  role = aws_iam_role.flows[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid      = "WriteFlows"
      Effect   = "Allow"
      Action   = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
      Resource = ["${aws_cloudwatch_log_group.flows[0].arn}:*"]
    }]
  })
}

resource "aws_flow_log" "this" {
  count = local.flow_logs ? 1 : 0

  vpc_id          = aws_vpc.this[0].id
  traffic_type    = "ALL"
  iam_role_arn    = aws_iam_role.flows[0].arn
  log_destination = aws_cloudwatch_log_group.flows[0].arn
  tags            = { Name = "${var.context.name}-flows" }
}
