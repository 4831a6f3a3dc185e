# The execution role of MWAA: what MWAA itself asks for, what `tailrace.aws.emr` asks, and reading the tables' state.
locals {
  runs = [for application in values(var.applications) : "${application}/jobruns/*"]

  airflow = concat(
    local.read_tables,
    local.read_secrets["airflow"],
    [
      {
        Sid      = "SayThatItLives"
        Effect   = "Allow"
        Action   = ["airflow:PublishMetrics"]
        Resource = ["${local.arn}:airflow:${local.here}:environment/${var.context.name}-airflow"]
      },
      {
        Sid    = "ReadTheArtifacts"
        Effect = "Allow"
        Action = [
          "s3:GetObject", "s3:GetObjectVersion", "s3:GetBucketLocation", "s3:GetBucketVersioning", "s3:GetBucketPublicAccessBlock",
          "s3:GetEncryptionConfiguration", "s3:ListBucket", "s3:ListBucketVersions",
        ]
        Resource = [var.artifacts_bucket_arn, "${local.place}/*"]
      },
      {
        # It has no resource of its own: the account is all there is.
        Sid       = "IsTheAccountClosed"
        Effect    = "Allow"
        Action    = ["s3:GetAccountPublicAccessBlock"]
        Resource  = ["*"]
        Condition = { StringEquals = { "aws:PrincipalAccount" = var.context.account_id } }
      },
      {
        Sid      = "LeaveNotesOnRuns"
        Effect   = "Allow"
        Action   = ["s3:PutObject"]
        Resource = ["${local.place}/outcomes/*"]
      },
      {
        Sid    = "LogTasks"
        Effect = "Allow"
        Action = [
          "logs:CreateLogGroup", "logs:CreateLogStream", "logs:GetLogEvents", "logs:GetLogGroupFields", "logs:GetLogRecord",
          "logs:GetQueryResults", "logs:PutLogEvents",
        ]
        Resource = ["${local.arn}:logs:${local.here}:log-group:airflow-${var.context.name}-*"]
      },
      {
        Sid      = "FindLogGroups"
        Effect   = "Allow"
        Action   = ["logs:DescribeLogGroups"]
        Resource = ["${local.arn}:logs:${local.here}:log-group:*"]
      },
      {
        # It has no resource; the namespace is what can be held.
        Sid       = "CountTasks"
        Effect    = "Allow"
        Action    = ["cloudwatch:PutMetricData"]
        Resource  = ["*"]
        Condition = { StringEquals = { "cloudwatch:namespace" = ["AmazonMWAA", "AWS/MWAA"] } }
      },
      {
        # The queue is MWAA's own, in an account of AWS that nobody is told.
        Sid    = "QueueTasks"
        Effect = "Allow"
        Action = [
          "sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:ReceiveMessage",
          "sqs:SendMessage",
        ]
        Resource = ["${local.arn}:sqs:${var.context.region}:*:airflow-celery-*"]
      },
      {
        Sid      = "UseTheKey"
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"]
        Resource = [local.kms_key]
      },
      {
        Sid      = "AskForRuns"
        Effect   = "Allow"
        Action   = ["emr-serverless:ListJobRuns", "emr-serverless:StartJobRun"]
        Resource = values(var.applications)
      },
      {
        Sid      = "FollowRuns"
        Effect   = "Allow"
        Action   = ["emr-serverless:CancelJobRun", "emr-serverless:GetJobRun", "emr-serverless:TagResource"]
        Resource = local.runs
      },
      {
        Sid       = "GiveRunsTheirRoles"
        Effect    = "Allow"
        Action    = ["iam:PassRole"]
        Resource  = [aws_iam_role.stream.arn, aws_iam_role.backfill.arn]
        Condition = { StringEquals = { "iam:PassedToService" = "emr-serverless.amazonaws.com" } }
      },
    ],
  )
}
