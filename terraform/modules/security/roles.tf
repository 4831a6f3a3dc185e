locals {
  emr_trust = {
    for name, application in var.applications : name => jsonencode({
      Version = "2012-10-17"
      Statement = [{
        Sid       = "RunsOfThisApplication"
        Effect    = "Allow"
        Principal = { Service = "emr-serverless.amazonaws.com" }
        Action    = "sts:AssumeRole"
        Condition = {
          StringEquals = { "aws:SourceAccount" = var.context.account_id }
          ArnLike      = { "aws:SourceArn" = application }
        }
      }]
    })
  }
}

resource "aws_iam_role" "stream" {
  name               = "${var.context.name}-stream"
  description        = "What a stream's job runs may do"
  assume_role_policy = local.emr_trust["stream"]
}

resource "aws_iam_role_policy" "stream" {
  name   = "${var.context.name}-stream"
  role   = aws_iam_role.stream.id
  policy = jsonencode({ Version = "2012-10-17", Statement = local.stream })
}

resource "aws_iam_role" "backfill" {
  name               = "${var.context.name}-backfill"
  description        = "What backfills and maintenance may do"
  assume_role_policy = local.emr_trust["backfill"]
}

resource "aws_iam_role_policy" "backfill" {
  name   = "${var.context.name}-backfill"
  role   = aws_iam_role.backfill.id
  policy = jsonencode({ Version = "2012-10-17", Statement = local.backfill })
}

resource "aws_iam_role" "analyst" {
  count = length(var.analyst_principals) > 0 ? 1 : 0

  name        = "${var.context.name}-analyst"
  description = "Reads the tables, and nothing else"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "WhoIsNamed"
      Effect    = "Allow"
      Principal = { AWS = var.analyst_principals }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "analyst" {
  count = length(var.analyst_principals) > 0 ? 1 : 0

  name   = "${var.context.name}-analyst"
  role   = aws_iam_role.analyst[0].id
  policy = jsonencode({ Version = "2012-10-17", Statement = local.analyst })
}

resource "aws_iam_role" "airflow" {
  count = var.airflow ? 1 : 0

  name        = "${var.context.name}-airflow"
  description = "What Airflow may do: ask for job runs, and read what they left"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "MwaaOfThisAccount"
      Effect    = "Allow"
      Principal = { Service = ["airflow.amazonaws.com", "airflow-env.amazonaws.com"] }
      Action    = "sts:AssumeRole"
      # MWAA says of which account it acts, but not of which environment while that is made.
      Condition = { StringEquals = { "aws:SourceAccount" = var.context.account_id } }
    }]
  })
}

resource "aws_iam_role_policy" "airflow" {
  count = var.airflow ? 1 : 0

  name   = "${var.context.name}-airflow"
  role   = aws_iam_role.airflow[0].id
  policy = jsonencode({ Version = "2012-10-17", Statement = local.airflow })
}
