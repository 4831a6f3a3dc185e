locals {
  root    = "arn:${var.context.partition}:iam::${var.context.account_id}:root"
  kms_key = var.existing_kms_key_arn == null ? aws_kms_key.this[0].arn : var.existing_kms_key_arn
}

# One key for data, logs, secrets and alarms: who may read which of them is in the roles' policies.
resource "aws_kms_key" "this" {
  count = var.existing_kms_key_arn == null ? 1 : 0

  description             = "${var.context.name}: tables, logs, secrets, alarms"
  enable_key_rotation     = true
  deletion_window_in_days = var.key_deletion_days
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        # Without it a key can become one that nobody may change; with it the roles' own policies decide.
        Sid       = "AccountDecidesByIam"
        Effect    = "Allow"
        Principal = { AWS = local.root }
        Action    = "kms:*"
        Resource  = "*"
      },
      {
        Sid       = "LogGroupsOfThisName"
        Effect    = "Allow"
        Principal = { Service = "logs.${var.context.region}.amazonaws.com" }
        Action    = ["kms:Encrypt", "kms:Decrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:GenerateDataKey", "kms:DescribeKey"]
        Resource  = "*"
        Condition = {
          ArnLike = {
            "kms:EncryptionContext:aws:logs:arn" = [
              "arn:${var.context.partition}:logs:${var.context.region}:${var.context.account_id}:log-group:/${var.context.name}/*",
              # MWAA makes its own log groups, with the environment's name in theirs.
              "arn:${var.context.partition}:logs:${var.context.region}:${var.context.account_id}:log-group:airflow-${var.context.name}-*",
            ]
          }
        }
      },
      {
        # Alarms and budgets publish to a topic that is encrypted with this key; of which account, the topic's policy says.
        Sid       = "AlarmsToTheTopic"
        Effect    = "Allow"
        Principal = { Service = ["cloudwatch.amazonaws.com", "budgets.amazonaws.com"] }
        Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
        Resource  = "*"
      },
    ]
  })
}

resource "aws_kms_alias" "this" {
  count = var.existing_kms_key_arn == null ? 1 : 0

  name          = "alias/${var.context.name}"
  target_key_id = aws_kms_key.this[0].key_id
}
